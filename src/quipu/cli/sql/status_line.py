"""A status line at the bottom of a terminal, which is erased afterwards."""

import shutil
import sys
from typing import Final, TextIO

_ERASE: Final = "\r\x1b[2K"


class StatusLine:
    """A line of a terminal that is overwritten; if the file is no terminal, nothing is written."""

    def __init__(self, file: TextIO | None = None) -> None:
        self._file = file if file is not None else sys.stderr
        self._is_terminal = self._file.isatty()
        self._is_shown = False

    def show(self, text: str) -> None:
        """Write the line, or overwrite it."""
        if self._is_terminal:
            columns = shutil.get_terminal_size().columns
            self._file.write(_ERASE + text[: columns - 1])
            self._file.flush()
            self._is_shown = True

    def clear(self) -> None:
        """Erase the line."""
        if self._is_shown:
            self._file.write(_ERASE)
            self._file.flush()
            self._is_shown = False
