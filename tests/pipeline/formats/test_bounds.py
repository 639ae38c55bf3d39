"""Few bytes that stand for many values: what one message, or many, can make a worker hold."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.pipeline.formats import bounds
from quipu.pipeline.formats.bounds import VALUES_MAX, blocks, width
from quipu.pipeline.formats.factory import make_format
from quipu.pipeline.formats.json import values as json_values
from quipu.pipeline.formats.protobuf import format as protobuf
from quipu.pipeline.formats.protobuf import size as protobuf_size
from quipu.pipeline.formats.protobuf.proto_file import descriptors_of
from quipu.pipeline.formats.specs import Avro, Json, Protobuf
from quipu.pipeline.types import Column
from tests.pipeline.formats.decoding import decoded

ROOT = Path(__file__).parents[3]
FIELDS = " ".join(f"int32 f{number} = {number + 1};" for number in range(50))
PROTO = f"""syntax = "proto3";
    message V {{ repeated S s = 1; repeated int32 n = 2; map<int32, S> m = 3; T t = 4;
                 repeated double d = 5; string x = 6; }}
    message S {{ {FIELDS} }}
    message T {{ S s = 1; repeated T2 t = 2; }}
    message T2 {{ S a = 1; S b = 2; }}"""
V = Protobuf(descriptors_of(PROTO), "V", framed=False)
RECORD = pa.struct([(f"f{number}", pa.int32()) for number in range(50)])
ROWS = Json((Column("a", pa.list_(RECORD)), Column("b", pa.list_(pa.list_(pa.int32())))))
WIDE = {"type": "record", "name": "wide", "fields": [
    {"name": f"n{number}", "type": "int"} for number in range(300)]}
OPTIONAL = Avro(json.dumps({"type": "record", "name": "v", "fields": [
    {"name": "b", "type": "int"},
    {"name": "a", "type": {"type": "array", "items": ["null", WIDE]}}]}), framed=False)
MANY = 9_000_000  # records without a field, in one message


def run_apart(script: str) -> None:
    """In a process of its own, which ends if it takes more memory than it gave itself."""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True,
                          check=False, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("shape", [
    "protobuf b'\\x0a\\x00'", "protobuf b'\\x1a\\x02\\x08\\x01'",
    "protobuf b'\\x22\\x02\\x12\\x00'", "protobuf b'\\x10\\x00'",
    "protobuf b'\\x22\\x04\\x12\\x02\\x0a\\x00'", "json b'{},'", "json b'{ },'"])
def test_a_message_of_empty_records_is_an_error_of_its_own(shape: str) -> None:
    """K8, I15: a batch of a few kilobytes may hold it; a worker has two gigabytes for it."""
    kind, piece = shape.split(" ", 1)
    script = f"""
import resource, pyarrow as pa
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
from quipu.pipeline.formats.factory import make_format
from tests.pipeline.formats import test_bounds as given
fmt = make_format(given.V if {kind!r} == "protobuf" else given.ROWS)
bomb = {piece} * given.MANY
good = b"\\x10\\x05" if {kind!r} == "protobuf" else b'{{"b": [[5]]}}'
if {kind!r} == "json":
    bomb = b'{{"a": [' + bomb[:-1] + b"]}}"
found = fmt.decode(pa.array([good, bomb, good]))
errors = found.errors.to_pylist()
assert errors[0] is errors[2] is None and "too many values" in errors[1], errors
assert found.columns[1].to_pylist() in ([[5], None, [5]], [[[5]], None, [[5]]])
"""
    run_apart(script)


def test_avro_messages_that_are_too_much_together_are_decoded_apart() -> None:
    """K8, I15: a null of one byte has a null for each field of its record."""
    script = """
import resource, pyarrow as pa
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
from quipu.pipeline.formats.factory import make_format
from tests.pipeline.formats import test_bounds as given
from tests.pipeline.formats.avro.avro_maker import encoded
def message(number, count):
    return encoded("int", number) + encoded("long", count) + bytes(count) + b"\\0"
fmt = make_format(given.OPTIONAL)
few = [message(number, 2000) for number in range(60)]
found = fmt.decode(pa.array([*few, message(5, 8_000_000), message(7, 1)]))
errors = found.errors.to_pylist()
assert errors[:60] == [None] * 60 and errors[61] is None, errors[:3]
assert "far more values" in errors[60], errors[60]
assert found.columns[0].to_pylist() == [*range(60), None, 7]
assert [len(each) for each in found.columns[1][:60]] == [2000] * 60
"""
    run_apart(script)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that tests reach."""
    for module in (bounds, json_values):
        monkeypatch.setattr(module, "VALUES_MAX", 1000)
    monkeypatch.setattr(protobuf, "UNITS_MAX", 2000)


@pytest.mark.usefixtures("small")
def test_messages_that_are_too_much_together_are_decoded_apart() -> None:
    """I10: each is what it is alone, in order, also beside one that is too much."""
    fmt = make_format(ROWS)
    texts: list[bytes | None] = [b'{"a": [{"f1": %d}, {}]}' % number for number in range(40)]
    texts[7], texts[20] = None, b'{"a": [' + b"{}," * 30 + b"{}]}"
    found = decoded(fmt, texts)
    assert found[7] is None
    assert "too many values" in found[20]
    assert [row[0][0]["f1"] for number, row in enumerate(found) if number not in (7, 20)] == [
        number for number in range(40) if number not in (7, 20)]

    proto = make_format(V)
    messages: list[bytes | None] = [b"\x0a\x02\x08%c\x0a\x00" % number for number in range(100)]
    messages[7], messages[20], messages[30] = None, b"\x0a\x00" * 40, b"\x0f"
    found = decoded(proto, messages)
    assert "too many values" in found[20]
    assert "too many values" not in found[30]
    assert [row[0][0]["f0"] for row in found if isinstance(row, tuple)] == [
        number for number in range(100) if number not in (7, 20, 30)]


@pytest.mark.usefixtures("small")
def test_lists_within_lists_are_counted_too() -> None:
    """K8."""
    fmt = make_format(ROWS)
    assert "too many values" in decoded(fmt, [b'{"b": [' + b"[]," * 1000 + b"[]]}"])[0]
    assert "too many values" in decoded(fmt, [b'{"b": [[' + b"1," * 1000 + b"1]]}"])[0]
    assert decoded(fmt, [b'{"b": [[' + b"1," * 900 + b"1]]}"]) == [(None, [[1] * 901])]


def test_what_is_large_and_plain_is_decoded() -> None:
    """I10: a bound on values is none on bytes."""
    numbers = [3.5] * 1_000_000
    message_class = _message_class()
    data = message_class(n=[300] * 1_000_000, d=numbers, x="x" * 20_000_000).SerializeToString()
    found = make_format(V).decode(pa.array([data]))
    assert found.errors.to_pylist() == [None]
    assert found.columns[4].flatten().to_pylist() == numbers
    text = b'{"b": [[' + b",".join([b"7"] * 2_000_000) + b"]]}"
    assert make_format(ROWS).decode(pa.array([text])).errors.to_pylist() == [None]


def _message_class() -> Any:
    return type(make_format(V)._empty)  # type: ignore[attr-defined]


def _counted(message: Any) -> int:
    """The units of a message that was parsed, by the rule that `protobuf_size` tells."""
    units = protobuf_size.RECORD_UNITS + protobuf_size._width(message.DESCRIPTOR, ())
    for field, value in message.ListFields():
        if field.message_type is None:
            packed = field.is_repeated
            units += protobuf_size.FIELD_UNITS + (len(value) if packed else 0)
        elif field.message_type.GetOptions().map_entry:
            entry = protobuf_size.RECORD_UNITS + 2 + 50 + protobuf_size.FIELD_UNITS
            units += sum(entry + 2 * protobuf_size.FIELD_UNITS + _counted(each)
                         for each in value.values())
        else:
            each_value = value if field.is_repeated else [value]
            units += sum(protobuf_size.FIELD_UNITS + _counted(each) for each in each_value)
    return units


records = st.builds(dict, f0=st.integers(1, 2**31 - 1), f49=st.integers(1, 5))
messages = st.builds(
    dict, s=st.lists(records, max_size=5), n=st.lists(st.integers(0, 127), max_size=20),
    d=st.lists(st.floats(0, 1), max_size=5), x=st.text(max_size=9),
    t=st.builds(dict, t=st.lists(st.builds(dict, a=records), max_size=3)))


@given(messages)
@settings(max_examples=200, deadline=None)
def test_units_are_those_of_what_is_parsed(given_message: dict[str, Any]) -> None:
    """K8: counted before it is parsed; never more than its length allows."""
    fmt: Any = make_format(V)
    message = _message_class()(**given_message)
    data = message.SerializeToString()
    sizes = fmt._sizes
    assert sizes.units(data, VALUES_MAX) == _counted(message)
    assert sizes.units(data, VALUES_MAX) <= sizes.at_most(len(data))


@given(st.binary(max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_counted(data: bytes) -> None:
    """K8: broken ones too; of others never more than their length allows."""
    fmt: Any = make_format(V)
    units = fmt._sizes.units(data, VALUES_MAX)
    assert units >= fmt._sizes.at_most(0)
    if fmt.decode(pa.array([data])).errors[0].as_py() is None:
        assert units <= fmt._sizes.at_most(len(data))


@given(st.lists(st.one_of(st.none(), st.integers(0, 40)), max_size=40), st.integers(1, 30),
       st.integers(1, 60))
@settings(deadline=None)
def test_blocks_are_all_rows_once_within_bounds(
    lengths: list[int | None], columns: int, size: int
) -> None:
    """I10: as many as fit, and at least one."""
    data = pa.array([None if length is None else b"x" * length for length in lengths], pa.binary())
    names = [Column(f"c{number}", pa.int32()) for number in range(columns)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounds, "BLOCK_SIZE", size)
        patch.setattr(bounds, "VALUES_MAX", 100)
        found = list(blocks(names, [data, data]))
    assert [row for each in found for row in range(len(data))[each]] == list(range(len(data)))
    for each in found:
        assert each.stop - each.start <= 1 or (
            2 * sum(length or 0 for length in lengths[each]) <= size
            and (each.stop - each.start) * columns <= 100)


def test_width_is_what_a_record_costs() -> None:
    """K8."""
    assert width(pa.int32()) == width(pa.list_(RECORD)) == 1
    assert width(RECORD) == 51
    assert width(pa.struct([("r", RECORD), ("x", pa.string())])) == 53
