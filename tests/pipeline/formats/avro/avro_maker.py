"""Random Avro schemas with values: as fastavro takes them, and as Arrow gives them back."""

import datetime as dt
import io
import json
import math
import struct
import uuid
from decimal import Context, Decimal
from typing import Any, NamedTuple

import fastavro
from hypothesis import strategies as st

WIDE = Context(prec=60)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class Made(NamedTuple):
    """A type, values for fastavro, and what they become."""

    schema: Any
    values: st.SearchStrategy[tuple[Any, Any]]  # (given, expected)


def same(values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, Any]]:
    return values.map(lambda value: (value, value))


def single(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def _moments(unit: int, *, local: bool) -> st.SearchStrategy[tuple[Any, Any]]:
    def moment(number: int) -> tuple[Any, Any]:
        value = EPOCH + dt.timedelta(microseconds=number * unit)
        return (value.replace(tzinfo=None),) * 2 if local else (value, value)

    return st.integers(-2**40, 2**42).map(moment)


def _time(digits: int) -> st.SearchStrategy[tuple[Any, Any]]:
    def time(number: int) -> tuple[Any, Any]:
        value = (EPOCH + dt.timedelta(seconds=number / 10**digits)).time()
        micros = number * 10 ** (6 - digits) % 10**6
        value = value.replace(microsecond=micros)
        return value, value.strftime("%H:%M:%S.%f")[:9 + digits]

    return st.integers(0, 86_399).flatmap(
        lambda seconds: st.integers(0, 10**digits - 1).map(
            lambda rest: time(seconds * 10**digits + rest)))


def _decimals(precision: int, scale: int) -> st.SearchStrategy[tuple[Any, Any]]:
    most = 10**precision - 1
    return same(st.integers(-most, most).map(
        lambda number: Decimal(number).scaleb(-scale, context=WIDE)))


PLAIN = {
    "boolean": same(st.booleans()),
    "int": same(st.integers(-2**31, 2**31 - 1)),
    "long": same(st.integers(-2**63, 2**63 - 1)),
    "float": same(st.floats(width=32, allow_nan=False)),
    "double": same(st.floats(allow_nan=False)),
    "bytes": same(st.binary(max_size=20)),
    "string": same(st.text(max_size=12)),
}
LOGICAL = [
    Made({"type": "int", "logicalType": "date"}, same(st.dates(dt.date(1, 1, 1)))),
    Made({"type": "int", "logicalType": "time-millis"}, _time(3)),
    Made({"type": "long", "logicalType": "time-micros"}, _time(6)),
    Made({"type": "long", "logicalType": "timestamp-millis"}, _moments(1000, local=False)),
    Made({"type": "long", "logicalType": "timestamp-micros"}, _moments(1, local=False)),
    Made({"type": "long", "logicalType": "local-timestamp-millis"}, _moments(1000, local=True)),
    Made({"type": "long", "logicalType": "local-timestamp-micros"}, _moments(1, local=True)),
    Made({"type": "string", "logicalType": "uuid"}, st.uuids().map(lambda u: (u, str(u)))),
    Made({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3}, _decimals(9, 3)),
    Made({"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0},
         _decimals(38, 0)),
]


class Names:
    """Fresh names for named types."""

    def __init__(self) -> None:
        self.count = 0

    def fresh(self) -> str:
        self.count += 1
        return f"n{self.count}"


def _named(names: Names) -> list[Made]:
    enum, fixed, decimal, identifier = (names.fresh() for _ in range(4))
    symbols = ["A", "BB", "CCC"]
    return [
        Made({"type": "enum", "name": enum, "symbols": symbols}, same(st.sampled_from(symbols))),
        Made({"type": "fixed", "name": fixed, "size": 5},
             same(st.binary(min_size=5, max_size=5))),
        Made({"type": "fixed", "name": decimal, "size": 6, "logicalType": "decimal",
              "precision": 12, "scale": 2}, _decimals(12, 2)),
        Made({"type": "fixed", "name": identifier, "size": 16, "logicalType": "uuid"},
             st.uuids().map(lambda u: (u.bytes, str(uuid.UUID(bytes=u.bytes))))),
    ]


@st.composite
def made_types(draw: Any, names: Names, depth: int = 2) -> Made:
    kinds = ["plain", "logical", "named"]
    if depth:
        kinds += ["record", "array", "map", "optional", "union"]
    match draw(st.sampled_from(kinds)):
        case "plain":
            kind = draw(st.sampled_from(sorted(PLAIN)))
            return Made(kind, PLAIN[kind])
        case "logical":
            return draw(st.sampled_from(LOGICAL))
        case "named":
            return draw(st.sampled_from(_named(names)))
        case "record":
            return draw(made_records(names, depth - 1))
        case "array":
            item = draw(made_types(names, depth - 1))
            return Made({"type": "array", "items": item.schema}, st.lists(
                item.values, max_size=3).map(_unzipped))
        case "map":
            item = draw(made_types(names, depth - 1))
            return Made({"type": "map", "values": item.schema}, st.dictionaries(
                st.text(max_size=4), item.values, max_size=3).map(lambda pairs: (
                    {key: value[0] for key, value in pairs.items()},
                    [(key, value[1]) for key, value in pairs.items()])))
        case "optional":
            return _optional(draw(made_types(names, depth - 1)))
    return draw(_unions(names))


def _unzipped(pairs: list[tuple[Any, Any]]) -> tuple[list[Any], list[Any]]:
    return [given for given, _ in pairs], [expected for _, expected in pairs]


def _optional(made: Made) -> Made:
    if isinstance(made.schema, list):
        return made
    return Made(["null", made.schema], st.one_of(st.just((None, None)), made.values))


@st.composite
def _unions(draw: Any, names: Names) -> Made:
    kinds = draw(st.lists(st.sampled_from(["int", "string", "boolean", "double"]), min_size=2,
                          max_size=3, unique=True))
    nullable = draw(st.booleans())

    def values(kind: str) -> st.SearchStrategy[tuple[Any, Any]]:
        return PLAIN[kind].map(lambda value: (
            (kind, value[0]), {each: value[1] if each == kind else None for each in kinds}))

    strategies = [values(kind) for kind in kinds]
    if nullable:
        strategies.append(st.just((None, None)))
    return Made((["null"] if nullable else []) + kinds, st.one_of(strategies))


@st.composite
def made_records(draw: Any, names: Names, depth: int = 2) -> Made:
    name = names.fresh()
    fields = draw(st.lists(made_types(names, depth), min_size=1, max_size=4))
    schema = {"type": "record", "name": name, "fields": [
        {"name": f"f{index}", "type": each.schema} for index, each in enumerate(fields)]}
    return Made(schema, st.tuples(*(each.values for each in fields)).map(lambda pairs: (
        {f"f{index}": pair[0] for index, pair in enumerate(pairs)},
        {f"f{index}": pair[1] for index, pair in enumerate(pairs)})))


def encoded(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return out.getvalue()


def is_alike(one: Any, other: Any) -> bool:
    """Equal, and floats to the last bit but for the kind of NaN."""
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_alike(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(is_alike, one, other))
    return bool(one == other)
