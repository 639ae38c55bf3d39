"""Reads the properties file that `--config` names."""

from pathlib import Path
from typing import Final

from quipu.model.errors import SettingError

CONFIG_SIZE_MAX: Final = 1 << 20


def read_config(path: Path) -> str:
    """The text of a properties file; SettingError if it cannot be read."""
    try:
        with path.open("rb") as file:
            content = file.read(CONFIG_SIZE_MAX + 1)
    except OSError as error:
        raise SettingError(f"cannot read --config {path}: {error.strerror}") from None
    if len(content) > CONFIG_SIZE_MAX:
        raise SettingError(f"--config {path}: is larger than {CONFIG_SIZE_MAX} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise SettingError(f"--config {path}: is not text in UTF-8") from None
