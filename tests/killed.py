"""What a process that is killed now would leave behind."""

import shutil
from contextlib import suppress
from pathlib import Path


def killed(path: Path, to: Path) -> Path:
    """A copy of the directory `path`, as a restarted process would find it.

    Files that are on their way out may go while they are copied, as they may before a kill.
    """
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    for file in sorted(path.iterdir()):
        with suppress(FileNotFoundError):
            shutil.copy2(file, to / file.name)
    return to
