"""Classes that settings name: `module.Class`, also from directories outside of the package."""

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from quipu.model.errors import QuipuError, SettingError


def load_class(name: str, setting: str) -> Callable[..., Any]:
    """The class that `setting` names; raises `SettingError`."""
    module_name, _, class_name = name.rpartition(".")
    if not module_name or not all(part.isidentifier() for part in name.split(".")):
        raise SettingError(f"{setting}: {name[:200]!r} is no class; write MODULE.CLASS")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # the module is the user's, and may raise anything
        raise SettingError(
            f"{setting}: {module_name} cannot be imported ({type(error).__name__}: {error}); "
            "install it, or name its directory in the class path") from error
    found = getattr(module, class_name, None)
    if not callable(found):
        raise SettingError(f"{setting}: {module_name} has no class {class_name}")
    return found  # type: ignore[no-any-return]  # callable


def construct(made: Callable[..., Any], setting: str, *arguments: object) -> object:
    """An object of a class that `setting` names; raises `SettingError` if that fails."""
    try:
        return made(*arguments)
    except QuipuError:
        raise
    except Exception as error:  # the class is the user's, and may raise anything
        raise SettingError(f"{setting}: {getattr(made, '__name__', made)} cannot be made "
                           f"({type(error).__name__}: {error})") from error


def add_class_path(class_path: str, setting: str) -> None:
    """Let modules be found in the directories of `class_path`, after all others."""
    for directory in filter(None, class_path.split(os.pathsep)):
        if not (Path(directory).is_absolute() and Path(directory).is_dir()):
            raise SettingError(f"{setting}: {directory!r} is not the absolute path of a directory")
        if directory not in sys.path:
            sys.path.append(directory)
