"""The worked example of docs/internals/segment-object.md is what the code writes and reads."""

import re
from pathlib import Path
from uuid import UUID

from quipu.remote.segments.footer import SegmentEpoch
from quipu.remote.segments.names import SegmentName
from quipu.remote.segments.writer import SegmentToCopy
from quipu.runtime.objects.memory import MemoryStore
from tests.looped import looped
from tests.remote.segments.builders import NOW_MS, MadeSegment, put, reader_of

INTERNALS = Path(__file__).parents[3] / "docs" / "internals"
PAGE = (INTERNALS / "segment-object.md").read_text()
ROW = re.compile(r"^([0-9a-f]{8})  ([0-9a-f ]{48,}?)  \|(.*)\|$", re.MULTILINE)


def dump(text: str) -> bytes:
    return b"".join(bytes.fromhex(row[1]) for row in ROW.findall(text))


@looped
async def test_the_dump_in_the_documentation_is_an_object() -> None:
    """R13: key, footer, trailer and pointer, byte for byte."""
    data = dump((INTERNALS / "stored-batch.md").read_text())
    segment = SegmentToCopy(
        name=SegmentName(UUID("6f1c02d4-8f0a-4c57-9d3e-2b7a5e0c1a11"), 3, 417,
                         UUID("0b5e7d52-3c1f-4a86-b1d0-94e2f7a8c633")),
        topic="orders", data=memoryview(data), size=len(data), end_offset=418, log_start=419,
        log_end=420, max_timestamp=1_767_225_600_000, epochs=(SegmentEpoch(2, 417, 419),))
    made = MadeSegment(segment, [], data)
    store = MemoryStore(lambda: NOW_MS)
    pointer = await put(store, made)
    assert f"`{segment.name.key}`" in PAGE
    assert await store.get(segment.name.key) == data + dump(PAGE)
    assert int(ROW.findall(PAGE)[0][0], 16) == len(data)
    assert f"`{pointer.encode().hex(' ')}`" in PAGE
    assert (await reader_of(store, made, pointer).verify()).batch_count == 1


def test_the_tables_in_the_documentation_add_up() -> None:
    """Positions and types of footer, trailer and pointer."""
    sizes = {"u16": 2, "u32": 4, "i32": 4, "i64": 8, "16 bytes": 16, "8 bytes": 8, "2 bytes": 2}
    ends = []
    for part in ("## Footer", "## Trailer", "## Pointer"):
        text = PAGE.partition(part)[2].partition("\n## ")[0]
        position = 0
        for at, kind in re.findall(r"^\| (\d+) \| [^|]+ \| ([^|]+?) \|", text, re.MULTILINE):
            assert int(at) == position, (part, at)
            position += sizes.get(kind, 0)
        ends.append(position)
    assert ends == [108, 32, 24]
