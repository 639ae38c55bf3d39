"""`quipu sql --serve`: views are kept up to date until somebody says stop.

A line per source and view tells how it goes: on a terminal they are written over, elsewhere they
come every few seconds, as JSON if asked for.
"""

import sys
import threading
from collections.abc import Sequence
from typing import Final, TextIO

from quipu.cli.output import plain_table, print_json
from quipu.cli.sql_answers import Engine, Progress
from quipu.cli.sql_progress import COLUMNS, line, row

READY: Final = "quipu sql ready"
TERMINAL_SECONDS: Final = 1.0


def serve(
    engine: Engine, *, every_seconds: float, as_json: bool, stopping: threading.Event,
    out: TextIO | None = None,
) -> None:
    """Tell of progress until Ctrl-C, or until `stopping` is set."""
    out = out if out is not None else sys.stdout
    over = out.isatty() and not as_json
    if not as_json:
        print(READY, file=out, flush=True)
    lines = 0
    try:
        while not stopping.wait(TERMINAL_SECONDS if over else every_seconds):
            if over and lines:
                out.write(f"\x1b[{lines}A\x1b[J")
            lines = tell_progress(engine.progress(), as_json=as_json, out=out)
    except KeyboardInterrupt:
        return


def tell_progress(progress: Sequence[Progress], *, as_json: bool, out: TextIO) -> int:
    """Write a line for each; returns how many lines that took."""
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
