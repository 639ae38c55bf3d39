"""Where software of other makers is; a test whose software is not there is skipped, with why."""

import json
import os
from pathlib import Path

import pytest

from tools.interop import PROBLEMS, SOFTWARE


def folder_of(name: str) -> Path:
    """Where a software is installed; the test is skipped if it is not."""
    problem = json.loads(os.environ.get(PROBLEMS, "{}")).get(name)
    (software,) = (each for each in SOFTWARE if each.name == name)
    if problem is None and not software.folder.is_dir():
        problem = f"{name} is not installed: run `make interop`"
    if problem is not None:
        pytest.skip(problem)
    return software.folder
