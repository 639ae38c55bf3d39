"""Every INCLUDE item with every envelope and every format: what must come of each cell.

    for cell in CELLS: cell.statement(…)       # CREATE SOURCE …
                       cell.refusal            # part of what it says, or None, and then
                       cell.columns, cell.rows, cell.letters

The messages are few, and hold what matters: a key that changes, one that is deleted, two
partitions, a message without key, headers that come twice, that are null, that are no number, and
that are missing.  What must come of them is worked out here, message by message, from the
messages alone, in the plainest way that there is.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, NamedTuple

from tests.pipeline.spark.cases.matrix_formats import FORMATS, WRAPPED, Format

Row = tuple[Any, ...]


class Sent(NamedTuple):
    """A message of a topic."""

    partition: int
    offset: int
    timestamp: int
    headers: Sequence[tuple[str, bytes | None]]
    key: int | None  # who it is about
    value: Any  # a name; with change events a `Change`, with updates a list or progress
    topic: str = ""


class Change(NamedTuple):
    """What Debezium tells of a row."""

    op: str
    before: Row | None
    after: Row | None


class Update(NamedTuple):
    """What Materialize tells of a row."""

    row: Row
    time: int
    diff: int


class Progress(NamedTuple):
    """What Materialize tells of time."""

    lower: int
    upper: int
    counts: Mapping[int, int]


X, NO_HEADERS, TWICE = [("h", b"x"), ("n", b"7")], [], [("h", b"x"), ("h", b"y")]
NULL, BAD = [("h", None)], [("n", b"many")]

PLAIN = [
    Sent(0, 0, 1000, X, 1, "a"), Sent(0, 1, 2000, TWICE, 1, "b"),
    Sent(0, 2, 3000, NO_HEADERS, 2, "c"), Sent(0, 3, 4000, X, 2, None),
    Sent(1, 0, 5000, NULL, 3, "d"), Sent(1, 1, 900, X, None, "e"), Sent(1, 2, 7000, BAD, 4, "f"),
]
CHANGES = [
    Sent(0, 0, 1000, X, 1, Change("c", None, (1, "a"))),
    Sent(0, 1, 2000, TWICE, 1, Change("u", (1, "a"), (1, "b"))),
    Sent(0, 2, 3000, NO_HEADERS, 2, Change("c", None, (2, "c"))),
    Sent(0, 3, 4000, X, 2, Change("d", (2, "c"), None)),
    Sent(0, 4, 4000, X, 2, None),
    Sent(1, 0, 5000, NULL, 3, Change("r", None, (3, "d"))),
    Sent(1, 1, 6000, BAD, 4, Change("c", None, (4, "f"))),
]
UPDATES = [
    Sent(0, 0, 1000, X, None, [Update((1, "a"), 1, 1), Update((2, "c"), 1, 1)]),
    Sent(0, 1, 2000, TWICE, None, [Update((1, "a"), 2, -1), Update((1, "b"), 2, 1),
                                   Update((2, "c"), 2, -1)]),
    Sent(0, 2, 3000, NO_HEADERS, None, Progress(0, 3, {1: 2, 2: 3})),
    Sent(1, 0, 5000, BAD, None, [Update((3, "d"), 3, 1)]),
    Sent(1, 1, 6000, NULL, None, Progress(3, 4, {3: 1})),
    Sent(1, 2, 7000, X, None, [Update((9, "z"), 9, 1)]),  # its time is not over
]
CHANGED_MS = 500  # before the message
TABLE = "people"


class BadHeader(ValueError):
    """A header that is not what it must be."""


def _header(sent: Sent, name: str) -> bytes | None:
    return dict(sent.headers).get(name)


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


def _number(data: bytes | None) -> int | None:
    if data is None:
        return None
    if not data.isdigit():
        raise BadHeader
    return int(data)


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


class Item(NamedTuple):
    """Something to INCLUDE: the column, and what it holds."""

    column: str
    of: Callable[[Sent], Any]
    is_debezium: bool = False


_ITEMS: Mapping[str, Item] = {
    "TIMESTAMP": Item("timestamp timestamptz", lambda sent: _time(sent.timestamp)),
    "TIMESTAMP TYPE": Item("timestamp_type text", lambda _: "CreateTime"),
    "OFFSET": Item("offset bigint", lambda sent: sent.offset),
    "PARTITION": Item("partition integer not null", lambda sent: sent.partition),
    "TOPIC": Item("topic text not null", lambda sent: sent.topic),
    "HEADERS": Item("headers record(key text, value bytes)[] not null",
                    lambda sent: [{"key": key, "value": value} for key, value in sent.headers]),
    "HEADER 'h' AS h": Item("h text", lambda sent: _text(_header(sent, "h"))),
    "HEADER 'h' AS h BYTES": Item("h bytes", lambda sent: _header(sent, "h")),
    "HEADER 'n' AS n bigint": Item("n bigint", lambda sent: _number(_header(sent, "n"))),
    "DEBEZIUM OP": Item("debezium_op text", lambda sent: sent.value.op, is_debezium=True),
    "DEBEZIUM TIMESTAMP": Item("debezium_timestamp timestamptz",
                               lambda sent: _time(sent.timestamp - CHANGED_MS), is_debezium=True),
    "DEBEZIUM TABLE": Item("debezium_table text", lambda _: TABLE, is_debezium=True),
}


def _renamed(written: str, name: str) -> tuple[str, Item]:
    item = _ITEMS[written]
    rest = item.column.partition(" ")[2]
    column = name.strip('"')
    return f"{written} AS {name}", item._replace(column=f"{column} {rest}")


ITEMS = {**_ITEMS, **dict(_renamed(written, f'"My{number}"' if number % 2 else f"my_{number}")
                          for number, written in enumerate(_ITEMS) if " AS " not in written)}
KEY, KEY_AS = "KEY", "KEY AS k"
_DEBEZIUM = tuple(written for written, item in _ITEMS.items() if item.is_debezium)
_ALL = tuple(written for written in _ITEMS if written not in (*_DEBEZIUM, "HEADER 'h' AS h BYTES"))
INCLUDES: Sequence[tuple[str, ...]] = [
    (), (KEY,), (KEY_AS,), *((written,) for written in ITEMS),
    _ALL, (*reversed(_ALL), KEY), (KEY_AS, *_ALL), (*_DEBEZIUM, *_ALL),
]


@dataclass(frozen=True)
class Envelope:
    """An envelope, and how rows are told apart: by a key of messages, by `id`, or not at all."""

    name: str
    has_key: bool = False  # KEY FORMAT … VALUE FORMAT …
    has_primary_key: bool = False

    @property
    def is_debezium(self) -> bool:
        return self.name.startswith("DEBEZIUM")

    @property
    def is_wrapped(self) -> bool:
        return self.name not in ("NONE", "UPSERT")

    @property
    def messages(self) -> list[Sent]:
        if not self.is_wrapped:
            return PLAIN
        return CHANGES if self.is_debezium else UPDATES

    def __str__(self) -> str:
        by = "-key" * self.has_key + "-id" * self.has_primary_key
        return f"{self.name.lower().replace(' ', '-')}{by}"


ENVELOPES = [
    Envelope("NONE"), Envelope("NONE", has_key=True),
    Envelope("UPSERT"), Envelope("UPSERT", has_key=True),
    Envelope("DEBEZIUM UPSERT"), Envelope("DEBEZIUM UPSERT", has_key=True),
    Envelope("DEBEZIUM UPSERT", has_primary_key=True),
    Envelope("DEBEZIUM"), Envelope("DEBEZIUM", has_key=True),
    Envelope("DEBEZIUM", has_primary_key=True),
    Envelope("MATERIALIZE"), Envelope("MATERIALIZE", has_primary_key=True),
]


@dataclass(frozen=True)
class Cell:
    """A format, an envelope, and what is included.  See above."""

    format: Format
    envelope: Envelope
    include: tuple[str, ...]

    @property
    def wrapped(self) -> Format | None:
        """The format of messages that wrap rows, if this one can."""
        return WRAPPED.get((self.format.name, self.envelope.is_debezium))

    @property
    def written(self) -> Format:
        """How the messages are written."""
        return self.wrapped or self.format if self.envelope.is_wrapped else self.format

    def statement(self, name: str) -> str:
        """What creates a source of that name."""
        written, envelope = self.written, self.envelope
        formats = (f"KEY FORMAT {written.key_sql} VALUE FORMAT {written.value_sql}"
                   if envelope.has_key else f"FORMAT {written.value_sql}")
        columns = list(written.defined)
        if envelope.has_primary_key:
            columns = [*(columns or ["id", "name"]), "PRIMARY KEY (id) NOT ENFORCED"]
        include = f"INCLUDE {', '.join(self.include)} " if self.include else ""
        listed = f"({', '.join(columns)}) " if columns else ""
        return (f"CREATE SOURCE {name} {listed}"
                f"FROM KAFKA CONNECTION k TOPIC '{written.topic}' {formats} "
                f"{include}ENVELOPE {envelope.name}")

    @property
    def refusal(self) -> str | None:
        """Why there can be no such source; the first of several reasons."""
        envelope, includes_key = self.envelope, bool({KEY, KEY_AS} & {*self.include})
        metadata = [written for written in self.include if written in ITEMS]
        if includes_key and envelope.is_debezium:
            return "Cannot use INCLUDE KEY with ENVELOPE DEBEZIUM"
        if includes_key and envelope.name == "MATERIALIZE":
            return "Cannot use INCLUDE KEY with ENVELOPE MATERIALIZE"
        if not envelope.is_debezium and any(ITEMS[each].is_debezium for each in metadata):
            return "requires ENVELOPE DEBEZIUM or DEBEZIUM UPSERT"
        if envelope.is_wrapped and self.wrapped is None:
            return ("needs the columns of the row" if self.format.name == "json-document"
                    else "requires that VALUE FORMAT is set to AVRO or JSON")
        if self._knows_key or envelope.has_primary_key:
            return None
        if envelope.name.endswith("UPSERT"):
            return "requires that KEY FORMAT be specified"
        if includes_key:
            return "INCLUDE KEY requires specifying KEY FORMAT .. VALUE FORMAT, got bare FORMAT"
        if envelope.is_wrapped and self.include:
            return f"with ENVELOPE {envelope.name} requires a key"
        return None

    @property
    def _knows_key(self) -> bool:
        if self.envelope.name == "MATERIALIZE":  # messages hold many rows
            return False
        return self.envelope.has_key or self.written.is_in_registry

    @property
    def _shows_key(self) -> bool:
        if self.envelope.name == "UPSERT":
            return True
        return bool({KEY, KEY_AS} & {*self.include})

    @property
    def columns(self) -> list[str]:
        """The columns, in order."""
        found = list(self.format.value_columns)
        if self._shows_key:
            keys = list(self.format.key_columns)
            if KEY_AS in self.include and len(keys) > 1:
                fields = ", ".join(column.removesuffix(" not null") for column in keys)
                keys = [f"k record({fields}) not null"]
            else:
                may_miss = self.envelope.name == "NONE"
                keys = [column.removesuffix(" not null") if may_miss else column
                        for column in keys]
                keys = [f"k{keys[0].removeprefix('key')}"] if KEY_AS in self.include else keys
            found = [*keys, *found]
        return [*found, *(ITEMS[each].column for each in self.include if each in ITEMS)]

    @property
    def rows(self) -> list[Row]:
        """The rows, in any order."""
        return self._outcome[0]

    @property
    def letters(self) -> list[tuple[int, int]]:
        """Partitions and offsets of messages that cannot be used."""
        return self._outcome[1]

    @cached_property
    def _outcome(self) -> tuple[list[Row], list[tuple[int, int]]]:
        letters: list[tuple[int, int]] = []
        shown: dict[Any, Row] = {}
        for name, sent, row in self._shown():
            if row is None:
                shown.pop(name, None)
                continue
            try:
                shown[name] = self._row(sent, row)
            except BadHeader:
                letters.append((sent.partition, sent.offset))
        return list(shown.values()), [*self._bad, *letters]

    def _shown(self) -> Iterator[tuple[Any, Sent, Row | None]]:
        """What each message does: to whom, and which row there is then."""
        for sent in (each._replace(topic=self.written.topic) for each in self.envelope.messages):
            match sent.value:
                case Change(before=before, after=after):
                    if before is not None and (after is None or before[0] != after[0]):
                        yield before[0], sent, None
                    if after is not None:
                        yield after[0], sent, after
                case Progress():
                    pass
                case [*updates]:
                    for update in sorted(updates, key=lambda each: each.diff):
                        if update.time < max(each.value.upper for each in UPDATES
                                             if isinstance(each.value, Progress)):
                            yield (update.row[0], sent, update.row if update.diff > 0 else None)
                case str():
                    row = self.format.value_row(sent.key or 0, sent.value)
                    if self.envelope.name == "NONE":
                        yield sent[:2], sent, row
                    elif sent.key is not None:
                        yield sent.key, sent, row
                case None if self.envelope.name == "UPSERT":
                    yield sent.key, sent, None

    def _row(self, sent: Sent, row: Row) -> Row:
        metadata = [ITEMS[each].of(sent) for each in self.include if each in ITEMS]
        key: Row = ()
        if self._shows_key:
            names = [column.split(" ")[0] for column in self.format.key_columns]
            key = ((None,) * len(names) if sent.key is None else self.format.key_row(sent.key))
            if KEY_AS in self.include and len(key) > 1:
                key = (dict(zip(names, key, strict=True)),)
        return (*key, *row, *metadata)

    @property
    def _bad(self) -> list[tuple[int, int]]:
        """Messages that are bad whatever is included."""
        if self.envelope.name == "UPSERT":
            return [sent[:2] for sent in PLAIN if sent.key is None]
        if self.envelope.name == "NONE" and self._shows_key:
            return [sent[:2] for sent in PLAIN if sent.value is None]
        return []


CELLS = [Cell(each, envelope, include)
         for each in FORMATS.values() for envelope in ENVELOPES for include in INCLUDES]
