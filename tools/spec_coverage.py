"""Which test shows which requirement: reads test docstrings, writes docs/spec-coverage.md.

    python -m tools.spec_coverage            write the page
    python -m tools.spec_coverage --check    exit code 1 if the page is out of date, if a
                                             requirement is shown by no test, or a test names
                                             a requirement that does not exist

A test says what it shows at the start of its docstring: "T5: ..." or "T5, K2: ...".
"""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = REPOSITORY / "docs" / "spec-coverage.md"

REQUIREMENTS = {
    "T1": "every stored batch has a type byte outside the client's checksum",
    "T2": "type 0 is refused at append, at replication and by recovery, naming log and offset",
    "T3": "one registry of types, one owner per number",
    "T4": "produced records are type 1; every internal use has its own type",
    "T5": "clients see type 1 only, with offsets that have no holes; lag reaches 0",
    "T6": "an entry holds batches of one type; entries travel by value",
    "T7": "every durable state of a node goes through the one storage log",
    "T8": "the layout is documented byte by byte; a checksum of our own guards the header",
    "T9": "`quipu log show` inspects logs offline and goes on after corruption",
    "T10": "`quipu log diff` finds where replicas part; `repair` cuts, and keeps what it cut",
    "T11": "a type of a newer version is kept, hidden and reported",
    "T12": "recovery cuts torn tails, reports corruption, and skips the scan after a clean stop",
    "V1": "a partition is segments named by first offset; they roll; look-up is a binary search",
    "V2": "a chain has a head and a tail; a chain of one replicates nothing",
    "V3": "writes at the head, committed reads at the tail, older ones anywhere, dirty ones on ask",
    "V4": "a node belongs to one chain; more machines are more chains",
    "V5": "nodes find each other by DNS or a list, and notice who fails; reads outlive writes",
    "V6": "chains are made explicitly of all their nodes, which are ordered by number",
    "V7": "a new node joins at the end, is sent everything, and becomes the tail in a new epoch",
    "V8": "a new topic goes to one of the chains of lowest weight, at random",
    "V9": "replication is pipelined; acknowledgements are cumulative, and repeated",
    "V10": "a node acknowledges what it has and its successor has; the rest can be sent again",
    "V11": "gaps and divergence are seen and refused; the loss of the last message is seen too",
    "V12": "acks 0, 1 and all",
    "V13": "the log is the history: what is needed after a restart is in it, and in no memory",
    "V14": "after all nodes were down the longest eligible log wins; nothing committed is cut",
    "V15": "epochs fence: a deposed node's writes, acknowledgements and reads are refused",
    "V16": "a node that comes back, with its disk or an empty one, rejoins and catches up",
    "V17": "the fsync policy is a setting, and what each loses is documented",
    "V18": "Kubernetes: a chart with truthful probes, rendered and checked",
    "V21": "with min.insync.replicas below the chain's length, writes go on without a failed node",
    "V22": "the chain's two invariants hold at every step of a simulation with every kind of fault",
    "I1": "CREATE SOURCE ... INCLUDE takes a list of items, each with an optional name",
    "I2": "metadata columns have their types: timestamptz, bigint, integer, text",
    "I3": "names fold to lower case unless they are quoted",
    "I4": "without INCLUDE a source has the data's columns alone, and pays for nothing else",
    "I5": "a clash of names is refused at CREATE, with the column and what to write instead",
    "I6": "columns come in order: key, value, metadata as written",
    "I7": "NONE, UPSERT and DEBEZIUM UPSERT with all metadata; a null value deletes",
    "I8": "self-retracting envelopes work, with metadata where there is a key",
    "I9": "rows of several sources are joined and united; the topic is a column",
    "I10": "formats: TEXT, BYTES, JSON, CSV, REGEX, AVRO, PROTOBUF, for keys and for values",
    "I11": "it runs on Spark, exactly once across kills, on a laptop and on a cluster",
    "I12": "sources are read as tables and as streams, also from PySpark without SQL",
    "I13": "views, kept up to date by a running query; what changes can be followed",
    "I14": "reading starts at offsets or times; several topics, or those that match a pattern",
    "I15": "a record that cannot be decoded stops nothing, and is kept with all about it",
    "I16": "headers, timestamp types and Debezium's fields as columns; order by event time",
    "I18": "the same pipeline reads from any Kafka broker",
    "I19": "a bad statement gets one error: place, text underlined, what to write",
    "I20": "rows, lag and rates of every source can be seen while it runs",
    "K1": "stock clients work unmodified",
    "K2": "produce and fetch: long poll, sessions, compressions, idempotence, times, size limits",
    "K3": "consumer groups by the classic protocol; offsets are durable",
    "K5": "topics: create, delete, configs, partitions, describe, auto-create, retention",
    "K6": "reassignment between chains, election of leaders, description of the quorum",
    "K8": "hostile bytes get an error or a closed connection and harm no one else",
    "K9": "metrics, health endpoints, structured logs",
    "K10": "a clean stop; a restart costs clients no more than retries",
    "K11": "the table of APIs and versions is generated from the code",
    "K12": "what is advertised is implemented in full",
}

_NUMBERS = re.compile(r"(?P<numbers>[A-Z]\d+(?:, ?[A-Z]\d+)*):\s")


class Shown(NamedTuple):
    """One test, by the file and the name that pytest gives it."""

    path: str
    name: str


def claims(path: str, text: str) -> Iterator[tuple[str, Shown]]:
    """Requirement numbers that the tests of one file claim to show."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if not isinstance(node, ast.ClassDef) and not node.name.startswith("test_"):
            continue  # helpers cite the invariants of the rooms, by numbers of their own
        found = _NUMBERS.match(ast.get_docstring(node) or "")
        if found is not None:
            for number in found["numbers"].split(","):
                yield number.strip(), Shown(path, node.name)


def coverage(repository: Path) -> dict[str, list[Shown]]:
    """Every claim in the tests, by requirement."""
    shown: dict[str, list[Shown]] = defaultdict(list)
    for file in sorted((repository / "tests").rglob("*.py")):
        if "node_modules" in file.parts:
            continue
        for number, test in claims(file.relative_to(repository).as_posix(), file.read_text()):
            shown[number].append(test)
    return shown


def render(shown: Mapping[str, list[Shown]]) -> str:
    """The page: an overview, then the tests of each requirement."""
    lines = [
        "# What is shown, and by which test",
        "",
        "Generated by `tools/spec_coverage.py` from the docstrings of the tests; do not edit.",
        "",
        "| # | requirement | tests |",
        "| --- | --- | --- |",
    ]
    lines += [f"| [{number}](#{number.lower()}) | {text} | {len(shown.get(number, []))} |"
              for number, text in REQUIREMENTS.items()]
    for number, text in REQUIREMENTS.items():
        lines += ["", f"## {number}", "", text[0].upper() + text[1:] + ".", ""]
        lines += [f"- [{test.path}](../{test.path}) `{test.name}`"
                  for test in sorted(shown.get(number, []))]
    return "\n".join(lines) + "\n"


def problems(shown: Mapping[str, list[Shown]], page: str) -> list[str]:
    """What `--check` complains about."""
    found = [f"{number} is shown by no test" for number in REQUIREMENTS if not shown.get(number)]
    found += [f"{test.path}: {test.name} names {number}, which is no requirement"
              for number in sorted(shown.keys() - REQUIREMENTS.keys()) for test in shown[number]]
    if page != render(shown):
        found.append("docs/spec-coverage.md is out of date: run `make docs`")
    return found


def main() -> int:
    """Write the page, or check it."""
    shown = coverage(REPOSITORY)
    if "--check" not in sys.argv:
        PAGE.write_text(render(shown))
        return 0
    found = problems(shown, PAGE.read_text() if PAGE.exists() else "")
    for problem in found:
        print(f"spec coverage: {problem}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
