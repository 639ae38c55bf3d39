"""`make bench`: the table of docs/operating/benchmarks.md on this machine, in about five minutes.

    tools/bench.py [--bootstrap HOST:PORT] [--json FILE] [P1 P2 ...]

Starts a temporary node unless --bootstrap is given; P12 to P14 are measured by `quipu bench sql`,
in a process of its own.  Exits with 0 whatever the ratios are: speed is reported, not asserted.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from quipu.bench import limits, table
from quipu.bench.errors import BenchError
from quipu.bench.lines import Line
from quipu.bench.machine import machine
from quipu.bench.report import as_dict, machine_line, show_ratios, table_row
from quipu.bench.sql.report import COLUMNS as SQL_COLUMNS
from quipu.bench.table import LINES
from quipu.bench.target import target
from quipu.cli.output import plain_table

RATIO_COLUMNS = ["#", "ratio", "value", "aim", "met"]
SQL = {"P12": "raw", "P13": "direct", "P14": "upsert"}  # parts of `quipu bench sql`
COLUMNS = ["what", "MB/s", "messages/s", "requests/s", "p50 us", "p99 us", "CPU s/GB",
           "CPU s/1000 req"]


def main() -> int:
    """Measure the given lines of the table, or all."""
    arguments = _arguments()
    started = time.monotonic()
    try:
        numbers = arguments.numbers or [*LINES, *SQL]
        lines = _measure(arguments.bootstrap, arguments.pid,
                         [number for number in numbers if number in LINES])
        sql = _measure_sql(arguments.bootstrap, [SQL[each] for each in numbers if each in SQL])
    except (BenchError, subprocess.CalledProcessError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    rows = []
    for line in lines:
        rows += [table_row(line.name, line.broker.best),
                 table_row("  its limit", line.limit.best)]
    if rows:
        print()
        print(plain_table(rows, COLUMNS), end="")
        show_ratios([each for line in lines for each in line.ratios])
    if sql is not None:
        for table, columns in (("table", SQL_COLUMNS), ("ratios", RATIO_COLUMNS)):
            print()
            print(plain_table(sql[table], columns), end="")
    print(machine_line(machine()))
    print(f"{time.monotonic() - started:.0f} s")
    if arguments.json is not None:
        told = json.dumps(_as_json(lines, sql), indent=1)
        arguments.json.write_text(told + "\n", encoding="utf-8")
    return 0


def _measure(bootstrap: str | None, pid: int | None, numbers: list[str]) -> list[Line]:
    lines: list[Line] = []
    if not numbers:
        return lines
    with target(bootstrap, pid) as broker, limits.scratch(broker.directory) as directory:
        table.warm_up(directory)
        for number in numbers:
            for measure in LINES[number]:
                line = measure(broker, directory)
                if line is None:
                    print(f"{number:4} left out: a package that it needs is not installed")
                    continue
                lines.append(line)
                told = ", ".join(f"{each.value:.2f}" for each in line.ratios if each.value)
                print(f"{number:4} {line.name}: {told}", flush=True)
    return lines


def _measure_sql(bootstrap: str | None, parts: list[str]) -> dict[str, Any] | None:
    if not parts:
        return None
    command = [sys.executable, "-m", "quipu", "bench", "sql", "--json", "--only", ",".join(parts)]
    if bootstrap is not None:
        command += ["--bootstrap", bootstrap]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _as_json(lines: list[Line], sql: dict[str, Any] | None) -> dict[str, object]:
    return {
        "machine": machine(),
        "sql": sql,
        "lines": [
            {"name": line.name,
             "broker": [as_dict(each) for each in line.broker.rounds],
             "limit": [as_dict(each) for each in line.limit.rounds],
             "ratios": [each.row() for each in line.ratios]}
            for line in lines
        ],
    }


def _number(text: str) -> str:
    if text not in {**LINES, **SQL}:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join([*LINES, *SQL])}")
    return text


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Speed, as ratios to this machine's own limits.")
    parser.add_argument("numbers", nargs="*", metavar="P1", type=_number,
                        help=f"of the table: {', '.join([*LINES, *SQL])}; all if none is given")
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="a broker; else a temporary node")
    parser.add_argument("--pid", type=int, help="the broker's process, for its CPU")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every round there too")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
