"""`quipu log export`: writes partitions as files that Apache Kafka, and its tools, can read."""

import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Final

import typer

from quipu.cli.log_arguments import EXIT_WRONG, TIME_HELP, AsJson, Paths, find, time_ms
from quipu.cli.log_object import is_object_file
from quipu.cli.output import count, note, print_json, printable
from quipu.model.batch_types import DATA
from quipu.model.topics import RESERVED
from quipu.runtime.disks.disk import RealDisk
from quipu.storage.inspect.examine import Seen, Selection, file_name
from quipu.storage.inspect.export import (
    CannotExport,
    Exported,
    ExportRules,
    check_targets,
    export_log,
    partition_of,
)
from quipu.storage.inspect.files import LogFiles
from quipu.storage.inspect.repair import CannotRepair, hold

PROGRESS_SECONDS: Final = 2.0  # between two lines about one log
EPOCH_MAX: Final = (1 << 31) - 1


def export(
    paths: Paths,
    *,
    to: Annotated[str, typer.Option(
        help="The directory to write to; each partition gets a new directory in it.")],
    from_offset: Annotated[
        int | None, typer.Option(min=0, help="Start at the batch with this offset.")] = None,
    to_offset: Annotated[
        int | None, typer.Option(min=0, help="Stop at the batch before this offset.")] = None,
    from_time: Annotated[
        str | None, typer.Option(help=f"Only batches from this time on: {TIME_HELP}.")] = None,
    to_time: Annotated[
        str | None, typer.Option(help="Only batches from before this time.")] = None,
    leader_epoch: Annotated[
        int | None,
        typer.Option(min=0, max=EPOCH_MAX, help=(
            "Write this leader epoch into all batches: 0 for a partition that Kafka has just "
            "created. Without it they keep theirs.")),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also if a node is running on the data directory.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write partitions as segments of Apache Kafka, with their indexes.

    Batches are copied as they are. Damaged ones are reported and left out. Nothing is overwritten.
    """
    selection = Selection(
        offset_start=from_offset, offset_end=to_offset,
        time_start_ms=time_ms(from_time, "--from-time"),
        time_end_ms=time_ms(to_time, "--to-time"), types=frozenset({DATA}))
    for path in paths:
        if is_object_file(path):
            raise typer.BadParameter(
                f"{path}: an object of diskless topics has no offsets: export from a topic's log")
    disk = RealDisk()
    logs = [partition_of(disk, log) for log in find(disk, paths)
            if log.entry.rpartition("-")[0] not in RESERVED]
    faults = 0
    try:
        Path(to).mkdir(parents=True, exist_ok=True)
        check_targets(disk, logs, to)
        with nullcontext() if force else hold(disk, logs):
            for log in logs:
                shown = _Shown(log)
                result = export_log(disk, log, to, ExportRules(
                    selection=selection, leader_epoch=leader_epoch, on_fault=shown.fault,
                    on_progress=shown.progress))
                faults += result.faults
                _print_result(result, as_json=as_json)
    except CannotRepair as error:
        raise CannotExport(f"{error}, or export what it has written so far with --force") from None
    except OSError as error:
        raise CannotExport(f"{to}: {error.strerror}") from None
    if faults:
        raise typer.Exit(EXIT_WRONG)


class _Shown:
    """Tells of faults, and of how far a log is, on standard error."""

    def __init__(self, log: LogFiles) -> None:
        self._log = log
        self._size = sum(Path(segment.path).stat().st_size for segment in log.segments)
        self._next = time.monotonic() + PROGRESS_SECONDS

    def fault(self, seen: Seen) -> None:
        for finding in seen.findings:
            if finding.is_fault:
                print(f"  ! {printable(self._log.name)}: {file_name(seen.segment)}: "
                      f"{printable(str(finding))}", file=sys.stderr)

    def progress(self, done: int) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + PROGRESS_SECONDS
            note(f"{printable(self._log.name)}: {100 * done // max(1, self._size)} % of "
                 f"{self._size:,} bytes")


def _print_result(result: Exported, *, as_json: bool) -> None:
    if as_json:
        print_json({
            "kind": "export", "log": result.name, "directory": result.directory or None,
            "segments": result.segments, "batches": result.batches, "records": result.records,
            "bytes": result.bytes, "start_offset": result.start_offset,
            "end_offset": result.end_offset, "damaged_batches": result.damaged_batches,
            "faults": result.faults})
        return
    name = printable(result.name)
    if not result.directory:
        print(f"{name}: no records to export")
    else:
        print(f"{name}: offsets [{result.start_offset}, {result.end_offset}), "
              f"{count(result.records, 'record')} in {count(result.segments, 'segment')}, "
              f"{result.bytes:,} bytes, to {printable(result.directory)}")
    if result.damaged_batches:
        print(f"{name}: damaged batches left out: {result.damaged_batches:,}")
