"""One line at the bottom of a terminal that tells what is going on, and is gone afterwards."""

import shutil
import sys
from typing import Final, TextIO

_ERASE: Final = "\r\x1b[2K"


class StatusLine:
    """On a terminal a line that is written over; anywhere else nothing at all."""

    def __init__(self, file: TextIO | None = None) -> None:
        self._file = file if file is not None else sys.stderr
        self._is_terminal = self._file.isatty()
        self._is_shown = False

    def show(self, text: str) -> None:
        """Write the line, or write over it."""
        if self._is_terminal:
            columns = shutil.get_terminal_size().columns
            self._file.write(_ERASE + text[: columns - 1])
            self._file.flush()
            self._is_shown = True

    def clear(self) -> None:
        """Take the line away: what comes next is output."""
        if self._is_shown:
            self._file.write(_ERASE)
            self._file.flush()
            self._is_shown = False
