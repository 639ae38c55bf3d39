"""Arguments that the commands of `quipu log` have in common."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from quipu.runtime.disks.disk import Disk
from quipu.storage.inspect.files import LogFiles, NoLog, find_logs

EXIT_WRONG: Final = 1
TIME_HELP: Final = "2026-01-31T12:00Z or milliseconds since 1970"

Paths = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH...",
        help="A .log file, a log directory such as DATA/orders-0, a data directory, or a file "
             "with an object of diskless topics.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object per line.")]


def find(disk: Disk, paths: Iterable[str]) -> list[LogFiles]:
    """The logs at `paths`; wrong usage if there are none."""
    try:
        return [log for path in paths for log in find_logs(disk, path)]
    except NoLog as error:
        raise typer.BadParameter(str(error)) from None


def time_ms(word: str | None, option: str) -> int | None:
    """Milliseconds since 1970, from the argument of `option`."""
    if word is None:
        return None
    if re.fullmatch(r"\d{1,15}", word, re.ASCII):
        return int(word)
    try:
        moment = datetime.fromisoformat(word)
    except ValueError:
        raise typer.BadParameter(f"{option} {word}: write {TIME_HELP}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)
