"""The worked example of docs/internals/diskless-object.md is what the code writes and reads."""

import re
from pathlib import Path
from uuid import UUID

from quipu.diskless.objects.encoding import PendingBatch, encode_object
from quipu.diskless.objects.names import ObjectName
from quipu.diskless.objects.reading import check_batch, footer_of
from quipu.diskless.objects.receipts import LogNote, Receipt
from quipu.diskless.values import LogKey
from quipu.model.ids import NodeId, Offset
from quipu.wire.record_batch import Record, encode_batch, parse_header

PAGE = (Path(__file__).parents[3] / "docs" / "internals" / "diskless-object.md").read_text()
ROW = re.compile(r"^([0-9a-f]{8})  ([0-9a-f ]{48})  \|(.*)\|$", re.MULTILINE)


def test_the_dump_in_the_documentation_is_an_object() -> None:
    """D4: golden bytes: key, header, batch, footer and trailer."""
    log = LogKey(UUID("6f1c02d4-8f0a-4c57-9d3e-2b7a5e0c1a11"), 3)
    name = ObjectName(NodeId(2), UUID("0b5e7d52-3c1f-4a86-b1d0-94e2f7a8c633"), 7)
    batch = bytes(encode_batch([Record(b"k", b"knot", (), 1_767_225_600_000)], producer_id=9,
                               producer_epoch=0, base_sequence=5))
    encoded = encode_object(
        name, [PendingBatch(log, batch, parse_header(memoryview(batch)))],
        created_ms=1_767_225_600_250, receipts=[Receipt(name._replace(sequence=6), (416, -1))],
        notes=[LogNote(log, Offset(400), Offset(417))])
    data = b"".join(bytes.fromhex(row[1]) for row in ROW.findall(PAGE))
    assert f"`{encoded.key}`" in PAGE
    assert b"".join(encoded.buffers) == data
    footer = footer_of(memoryview(data))
    assert footer.name == name
    assert check_batch(memoryview(data)[16:89], footer.batches[0]).producer_id == 9


def test_the_tables_in_the_documentation_add_up() -> None:
    """D4: positions and types of header, footer and trailer."""
    sizes = {"u16": 2, "u32": 4, "i32": 4, "i64": 8, "16 bytes": 16, "8 bytes": 8}
    ends = []
    for part in ("## Header", "## Footer", "## Trailer"):
        text = PAGE.partition(part)[2].partition("\n## ")[0]
        position = 0
        for at, kind in re.findall(r"^\| (\d+) \| [^|]+ \| ([^|]+?) \|", text, re.MULTILINE):
            assert int(at) == position, (part, at)
            position += sizes[kind]
        ends.append(position)
    assert ends == [16, 60, 32]
