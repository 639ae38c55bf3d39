"""`make bench`: the table of docs/operating/benchmarks.md on this machine, in about two minutes.

    tools/bench.py [--bootstrap HOST:PORT] [--json FILE] [P1 P2 ...]

Starts a temporary node unless told of a broker.  Exits with 0 whatever the ratios are: speed is
reported, not asserted.
"""

import argparse
import json
import sys
import time
from pathlib import Path

from quipu.cli.bench import limits, table
from quipu.cli.bench.control import BenchError
from quipu.cli.bench.machine import machine
from quipu.cli.bench.report import as_dict, machine_line, show_ratios, table_row
from quipu.cli.bench.table import LINES, Line
from quipu.cli.bench.target import target
from quipu.cli.output import plain_table

COLUMNS = ["what", "MB/s", "messages/s", "requests/s", "p50 us", "p99 us", "CPU s/GB",
           "CPU s/1000 req"]


def main() -> int:
    """Measure what was asked for, line by line."""
    arguments = _arguments()
    started = time.monotonic()
    try:
        lines = _measure(arguments.bootstrap, arguments.pid, arguments.numbers or list(LINES))
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    rows = []
    for line in lines:
        rows += [table_row(line.name, line.broker.best),
                 table_row("  its limit", line.limit.best)]
    print()
    print(plain_table(rows, COLUMNS), end="")
    ratios = [each for line in lines for each in line.ratios]
    show_ratios(ratios)
    print(machine_line(machine()))
    print(f"{time.monotonic() - started:.0f} s")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(_as_json(lines), indent=1) + "\n", encoding="utf-8")
    return 0


def _measure(bootstrap: str | None, pid: int | None, numbers: list[str]) -> list[Line]:
    lines = []
    with target(bootstrap, pid) as broker, limits.scratch(broker.directory) as directory:
        table.warm_up(directory)
        for number in numbers:
            for measure in LINES[number]:
                line = measure(broker, directory)
                lines.append(line)
                told = ", ".join(f"{each.value:.2f}" for each in line.ratios if each.value)
                print(f"{number:4} {line.name}: {told}", flush=True)
    return lines


def _as_json(lines: list[Line]) -> dict[str, object]:
    return {
        "machine": machine(),
        "lines": [
            {"name": line.name,
             "broker": [as_dict(each) for each in line.broker.rounds],
             "limit": [as_dict(each) for each in line.limit.rounds],
             "ratios": [each.row() for each in line.ratios]}
            for line in lines
        ],
    }


def _number(text: str) -> str:
    if text not in LINES:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(LINES)}")
    return text


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Speed, as ratios to this machine's own limits.")
    parser.add_argument("numbers", nargs="*", metavar="P1", type=_number,
                        help=f"lines of the table: {', '.join(LINES)}; all if none is given")
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="a broker; else a temporary node")
    parser.add_argument("--pid", type=int, help="the broker's process, for its CPU")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every round there too")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
