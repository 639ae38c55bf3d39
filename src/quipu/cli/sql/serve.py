"""`quipu sql --serve`: keeps views up to date until it is stopped, and reports their progress.

A report has a line for each view and source.  On a terminal it overwrites the previous report;
elsewhere reports follow each other, as text or as JSON lines.
"""

import sys
import threading
from collections.abc import Sequence
from typing import Final, TextIO

from quipu.cli.output import plain_table, print_json
from quipu.cli.sql.engine import Engine, ViewProgress
from quipu.cli.sql.progress import COLUMNS, line, row

READY: Final = "quipu sql ready"
TERMINAL_SECONDS: Final = 1.0


def serve(
    engine: Engine, *, every_seconds: float, as_json: bool, stopping: threading.Event,
    out: TextIO | None = None,
) -> None:
    """Report progress until Ctrl-C, or until `stopping` is set."""
    out = out if out is not None else sys.stdout
    overwrites = out.isatty() and not as_json
    if not as_json:
        print(READY, file=out, flush=True)
    lines = 0
    try:
        while not stopping.wait(TERMINAL_SECONDS if overwrites else every_seconds):
            if overwrites and lines:
                out.write(f"\x1b[{lines}A\x1b[J")
            lines = report_progress(engine.progress(), as_json=as_json, out=out)
    except KeyboardInterrupt:
        return


def report_progress(progress: Sequence[ViewProgress], *, as_json: bool, out: TextIO) -> int:
    """Write the progress of each view; returns the number of lines written."""
    if as_json:
        for each in progress:
            print_json(row(each), file=out)
        text = ""
    elif out.isatty():
        text = plain_table([row(each) for each in progress], COLUMNS) if progress else ""
        out.write(text)
    else:
        text = "".join(line(each) for each in progress)
        out.write(text)
    out.flush()
    return text.count("\n")
