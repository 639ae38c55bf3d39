"""`quipu log`: shows, compares, exports and repairs stored logs; no node is needed.

Exit codes: 0 no fault found, 1 a fault found (or replicas differ), 2 wrong usage.
Rows are printed as they are read, so a log of any size can be shown.  Findings are printed below
each row: `!` marks a fault, `*` something unusual that is no fault.
"""

import sys
from collections.abc import Iterable
from typing import Annotated, Final, NamedTuple
from uuid import UUID

import typer

from quipu.cli.application import PLAIN
from quipu.cli.log_arguments import EXIT_WRONG, TIME_HELP, AsJson, Paths, find, time_ms
from quipu.cli.log_decoders import DECODERS
from quipu.cli.log_export import export
from quipu.cli.log_object import is_object_file, show_object
from quipu.cli.output import count, note, print_json, printable
from quipu.cli.output import show as show_rows
from quipu.model.batch_types import registered
from quipu.model.topics import RESERVED
from quipu.runtime.clock import SystemClock
from quipu.runtime.disks.disk import Disk, RealDisk
from quipu.storage.inspect import render
from quipu.storage.inspect.continuity import Finding
from quipu.storage.inspect.diff import Comparison, compare
from quipu.storage.inspect.examine import (
    Examination,
    ExaminedBatch,
    LogSummary,
    Seen,
    SeenDamage,
    Selection,
    file_name,
)
from quipu.storage.inspect.files import LogFiles, data_directory_of
from quipu.storage.inspect.marks import flushed_marks
from quipu.storage.inspect.repair import CannotRepair, RepairPlan, hold, plan_repair
from quipu.storage.inspect.repair import repair as repair_log

app = typer.Typer(
    help="Show, compare, export and repair stored logs; no node is needed.", **PLAIN
)
app.command()(export)

# Logs that differ between nodes: a node's own state, and its replica of the metadata log.
NEVER_THE_SAME: Final = tuple(f"{name}-" for name in sorted(RESERVED))


# --- show -------------------------------------------------------------------------------------


@app.command()
def show(
    paths: Paths,
    *,
    with_records: Annotated[
        bool, typer.Option("--records", help="Also show the records of each batch.")
    ] = False,
    from_offset: Annotated[
        int | None,
        typer.Option(min=0, help="Start at this client offset; earlier files are not opened."),
    ] = None,
    to_offset: Annotated[
        int | None, typer.Option(min=0, help="Stop before this client offset.")
    ] = None,
    from_time: Annotated[str | None, typer.Option(help=f"Start at this time: {TIME_HELP}.")] = None,
    to_time: Annotated[str | None, typer.Option(help="Stop before this time.")] = None,
    types: Annotated[
        list[str],
        typer.Option(
            "--type", help="Only batches of this type, by name or number; may be repeated."
        ),
    ] = [],  # noqa: B006 typer copies it
    summary_only: Annotated[
        bool, typer.Option("--summary", help="Only one row per log, and the faults.")
    ] = False,
    headers_only: Annotated[
        bool,
        typer.Option(
            "--headers-only", help="Faster: do not read the bodies of batches nor check them."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show every batch, and every fault that is found."""
    selection = Selection(
        offset_start=from_offset,
        offset_end=to_offset,
        time_start_ms=time_ms(from_time, "--from-time"),
        time_end_ms=time_ms(to_time, "--to-time"),
        types=frozenset(map(_type_number, types)) if types else None,
    )
    disk = RealDisk()
    objects = [path for path in paths if is_object_file(path)]
    faults = sum(show_object(
        disk, path, as_json=as_json, with_records=with_records, summary_only=summary_only,
        verify=not headers_only, selection=selection) for path in objects)
    if len(objects) < len(paths):
        logs = find(disk, [path for path in paths if path not in objects])
        faults += _show_logs(disk, logs, selection, _Shown(
            as_json=as_json, with_records=with_records, summary_only=summary_only,
            verify=not headers_only))
    if faults:
        raise typer.Exit(EXIT_WRONG)


class _Shown(NamedTuple):
    """What `show` prints."""

    as_json: bool
    with_records: bool
    summary_only: bool
    verify: bool


def _show_logs(
    disk: Disk, logs: Iterable[LogFiles], selection: Selection, shown: _Shown
) -> int:
    """Print logs; returns the number of faults."""
    as_json, with_records, summary_only, verify = shown
    printer = _JsonPrinter(selection) if as_json else _TextPrinter(selection)
    summaries = []
    for log in logs:
        marks = flushed_marks(disk, data_directory_of(log))
        examination = Examination(disk, log, verify=verify, selection=selection,
                                  flushed=marks.get(log.entry, 0))
        printer.start(log, with_heading=not summary_only)
        for seen in examination:
            if not summary_only or any(finding.is_fault for finding in seen.findings):
                printer.seen(seen)
                if with_records and isinstance(seen, ExaminedBatch):
                    printer.records(seen, examination.summary)
        summaries.append(examination.summary)
    printer.finish(summaries)
    return sum(summary.fault_count for summary in summaries)


class _TextPrinter:
    """Prints rows as they are read, and a table of summaries at the end."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._is_terminal = sys.stdout.isatty()
        self._name = ""

    def start(self, log: LogFiles, *, with_heading: bool) -> None:
        self._name = log.name
        if with_heading:
            segments = count(len(log.segments), "segment")
            print(f"{printable(log.name)}: {segments} in {printable(log.directory)}")
            print(render.HEADING)

    def seen(self, seen: Seen) -> None:
        if isinstance(seen, ExaminedBatch):
            print(render.batch_row(seen))
        for finding in seen.findings:
            where = "" if isinstance(seen, ExaminedBatch) else f"{file_name(seen.segment)}: "
            self._finding(f"{where}{finding}", finding)

    def _finding(self, text: str, finding: Finding) -> None:
        mark, colour = ("!", "red") if finding.is_fault else ("*", "yellow")
        line = f"  {mark} {self._name}: {printable(text)}"
        print(typer.style(line, fg=colour) if self._is_terminal else line)

    def records(self, seen: ExaminedBatch, summary: LogSummary) -> None:
        for record in render.records(seen, DECODERS, self._selection):
            print(render.record_line(record))
            render.note_undecoded(record, summary)

    def finish(self, summaries: list[LogSummary]) -> None:
        print()
        show_rows(
            [render.summary_row(summary) for summary in summaries],
            render.SUMMARY_COLUMNS,
            as_json=False,
        )


class _JsonPrinter:
    """Prints one JSON object per batch, record, damage and file, and a summary per log."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._name = ""

    def start(self, log: LogFiles, *, with_heading: bool) -> None:  # noqa: ARG002 as its twin
        self._name = log.name

    def seen(self, seen: Seen) -> None:
        if isinstance(seen, ExaminedBatch):
            print_json(render.batch_json(self._name, seen))
        elif isinstance(seen, SeenDamage):
            print_json(render.damage_json(self._name, seen))
        else:
            print_json(render.file_json(self._name, seen))

    def records(self, seen: ExaminedBatch, summary: LogSummary) -> None:
        for record in render.records(seen, DECODERS, self._selection):
            print_json({"log": self._name, **record})
            render.note_undecoded(record, summary)

    def finish(self, summaries: list[LogSummary]) -> None:
        for summary in summaries:
            print_json(render.summary_json(summary))


# --- diff -------------------------------------------------------------------------------------


@app.command()
def diff(
    a: Annotated[str, typer.Argument(help="One replica: a file, log or data directory.")],
    b: Annotated[str, typer.Argument(help="The other replica.")],
    as_json: AsJson = False,
) -> None:
    """Compare two replicas and name the first offset where they differ."""
    disk = RealDisk()
    (logs_a, logs_b), unpaired = _pairs(find(disk, [a]), find(disk, [b]))
    differ = bool(unpaired)
    for name, side in unpaired:
        _print_difference(
            {"kind": "missing", "log": name, "only_in": side},
            f"{name}: only in {side}",
            as_json=as_json,
        )
    for log_a, log_b in zip(logs_a, logs_b, strict=True):
        comparison = compare(disk, log_a, log_b)
        differ = differ or comparison.difference is not None
        _print_difference(
            _comparison_json(comparison), _comparison_text(comparison), as_json=as_json
        )
    if differ:
        raise typer.Exit(EXIT_WRONG)


def _pairs(
    a: list[LogFiles], b: list[LogFiles]
) -> tuple[tuple[list[LogFiles], list[LogFiles]], list[tuple[str, str]]]:
    """The logs that both sides have, and (name, side) of each log that only one side has.

    Logs are paired by name and topic id, in whichever directory they are.  If each side has one
    log, these two are compared without a check of their names.
    """
    if len(a) == len(b) == 1:
        return (a, b), []
    logs_a, logs_b = _by_identity(a), _by_identity(b)
    both = sorted(logs_a.keys() & logs_b.keys())
    unpaired = [
        (identity[0], "A" if identity in logs_a else "B")
        for identity in sorted(logs_a.keys() ^ logs_b.keys())
    ]
    return ([logs_a[each] for each in both], [logs_b[each] for each in both]), unpaired


def _by_identity(logs: list[LogFiles]) -> dict[tuple[str, UUID], LogFiles]:
    return {(log.name, log.topic_id): log for log in logs
            if not log.entry.startswith(NEVER_THE_SAME)}


def _comparison_json(comparison: Comparison) -> render.Json:
    difference = comparison.difference
    return {
        "kind": "comparison",
        "log": comparison.log,
        "equal_batches": comparison.batches,
        "equal_bytes": comparison.bytes,
        "notes": list(comparison.notes),
        "log_offset": difference.log_offset if difference else None,
        "offset": difference.offset if difference else None,
        "differs": list(difference.how) if difference else [],
    }


def _comparison_text(comparison: Comparison) -> str:
    lines = [f"{comparison.log}: {note}" for note in comparison.notes]
    same = (
        f"{comparison.batches:,} batch{'' if comparison.batches == 1 else 'es'}, "
        f"{count(comparison.bytes, 'byte')}"
    )
    if comparison.difference is None:
        lines.append(f"{comparison.log}: the same: {same}")
    else:
        place = comparison.difference
        lines.append(
            f"{comparison.log}: differs at offset {place.offset}, log offset "
            f"{place.log_offset}, after {same} that are the same"
        )
        lines += [f"  {how}" for how in place.how]
    return "\n".join(lines)


def _print_difference(value: render.Json, text: str, *, as_json: bool) -> None:
    if as_json:
        print_json(value)
    else:
        print(text)


# --- repair -----------------------------------------------------------------------------------


@app.command()
def repair(
    path: Annotated[str, typer.Argument(help="A log directory, or a data directory.")],
    yes: Annotated[
        bool, typer.Option("--yes", help="Change the logs; else only show what would be changed.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Cut damaged logs after their last good batch; what is cut off is kept in files beside them.

    Nothing is changed without --yes, nor while a node runs on the data directory.
    """
    disk = RealDisk()
    logs = find(disk, [path])
    failed = False
    with hold(disk, logs):
        for log in logs:
            try:
                plan = plan_repair(disk, log)
                kept = repair_log(disk, plan, SystemClock()) if plan is not None and yes else None
            except CannotRepair as error:
                note(f"quipu: {printable(str(error))}")
                failed = True
                continue
            _print_repair(log, plan, kept, as_json=as_json)
            failed = failed or (plan is not None and not yes)
    if failed:
        raise typer.Exit(EXIT_WRONG)


def _print_repair(
    log: LogFiles, plan: RepairPlan | None, kept: list[str] | None, *, as_json: bool
) -> None:
    if as_json:
        print_json(render.repair_json(log, plan, kept))
    else:
        print("\n".join(render.repair_lines(log, plan, kept)))


# --- arguments --------------------------------------------------------------------------------


def _type_number(word: str) -> int:
    for info in registered():
        if info.name == word.lower():
            return info.number
    if word.isascii() and word.isdigit() and int(word) < 256:
        return int(word)
    names = ", ".join(info.name for info in registered())
    raise typer.BadParameter(f"--type {word}: give {names}, or a number up to 255")
