"""Batches of a log, laid out in objects in any way, and the runs that the control plane has."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple
from uuid import UUID

from hypothesis import strategies as st

from quipu.diskless.values import BatchRun, LogKey
from quipu.model.ids import Offset, TimestampMs
from quipu.wire.record_batch import Record, encode_batch, parse_header

LOG = LogKey(UUID(int=7), 3)
TOPIC = "orders"
START = 1_000  # the offset of the first record


class Layout(NamedTuple):
    """Runs, and the objects in which they are."""

    runs: list[BatchRun]
    objects: dict[str, bytes]

    def parts(self, runs: Iterable[BatchRun]) -> list[bytes]:
        return [self.objects[run.key][run.position : run.position + run.size] for run in runs]


@st.composite
def batches(draw: st.DrawFn) -> list[bytes]:
    """Batches of a few producers, some of them compressed; offsets and epochs as produced."""
    found, sequences = [], dict.fromkeys(range(3), 0)
    for _ in range(draw(st.integers(1, 12))):
        producer = draw(st.integers(-1, 2))
        count = draw(st.integers(1, 4))
        stamp = draw(st.integers(0, 5_000))
        records = [Record(b"k", draw(st.binary(max_size=40)), (), stamp + i) for i in range(count)]
        sequence = sequences.get(producer, -1)
        found.append(bytes(encode_batch(
            records, compression=draw(st.sampled_from([0, 1, 4])), producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1, base_sequence=sequence,
            base_offset=draw(st.integers(0, 99)), leader_epoch=draw(st.integers(-1, 9)))))
        if producer >= 0:
            sequences[producer] += count
    return found


def laid_out(made: Sequence[bytes], cuts: Iterable[int], *, padding: int = 0) -> Layout:
    """The batches in runs that begin at `cuts`, each in an object of its own."""
    edges = sorted({0, len(made), *(cut for cut in cuts if 0 < cut < len(made))})
    runs, objects, offset = [], {}, START
    for first, end in pairwise(edges):
        data = b"".join(made[first:end])
        headers = [parse_header(memoryview(each)) for each in made[first:end]]
        base = offset
        offset += sum(each.last_offset_delta + 1 for each in headers)
        key = f"objects/{padding}-{first}"
        objects[key] = bytes(padding) + data + b"footer"
        runs.append(BatchRun(
            LOG, Offset(base), Offset(offset), key, padding, len(data), len(headers),
            TimestampMs(max(each.max_timestamp for each in headers))))
    return Layout(runs, objects)
