"""A history checker: finds violated guarantees of a log in what clients sent and read.

The names are those of Jepsen's Kafka workload, so that a finding can be compared with others':

    lost-write             acknowledged, at or below the highest offset read, and never read
    unseen                 acknowledged, past everything read, and never read
    duplicate              one value at two offsets of a partition
    inconsistent-offsets   one offset of a partition with two values
    nonmonotonic-send      one sender's values, in the order sent, got falling offsets
    nonmonotonic-poll      one reader's offsets went backwards or repeated
    poll-skip              one reader skipped offsets
    aborted-read           read, although its sender got a final error
    phantom-read           read, although no client sent it

Values must be unique per partition.  Pure: nothing here knows Kafka or time.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple


class Outcome(Enum):
    """The outcome of a send, as far as the sender knows."""

    OK = "ok"  # acknowledged
    FAILED = "failed"  # told that it was not written
    UNKNOWN = "unknown"  # never heard back: both are possible


class Sent(NamedTuple):
    """One value that one sender sent; `offset` is known only if it was acknowledged."""

    sender: str
    partition: int
    value: str
    outcome: Outcome
    offset: int | None = None


class Read(NamedTuple):
    """One value that a reader got."""

    partition: int
    offset: int
    value: str


class Anomaly(NamedTuple):
    """One violated guarantee."""

    name: str
    detail: str


def check(sent: Sequence[Sent], readers: Sequence[Sequence[Read]]) -> list[Anomaly]:
    """Every anomaly of a finished history: sends in order per sender, reads in order per reader."""
    reads = [read for reader in readers for read in reader]
    found = [*_offsets_and_values(sent, reads), *_missing(sent, reads), *_not_sent(sent, reads),
             *_order_of_sends(sent, reads)]
    for reader in readers:
        found += _order_of_reads(reader)
    return found


def _observed(sent: Iterable[Sent], reads: Iterable[Read]) -> Iterator[Read]:
    """Each value with an offset that a client got."""
    yield from reads
    for each in sent:
        if each.outcome is Outcome.OK and each.offset is not None:
            yield Read(each.partition, each.offset, each.value)


def _offsets_and_values(sent: Sequence[Sent], reads: Sequence[Read]) -> Iterator[Anomaly]:
    values: dict[tuple[int, int], set[str]] = defaultdict(set)
    offsets: dict[tuple[int, str], set[int]] = defaultdict(set)
    for each in _observed(sent, reads):
        values[each.partition, each.offset].add(each.value)
        offsets[each.partition, each.value].add(each.offset)
    for (partition, offset), several in values.items():
        if len(several) > 1:
            yield Anomaly("inconsistent-offsets",
                          f"partition {partition} offset {offset}: {sorted(several)}")
    for (partition, value), places in offsets.items():
        if len(places) > 1:
            yield Anomaly("duplicate", f"partition {partition}: {value} at {sorted(places)}")


def _missing(sent: Sequence[Sent], reads: Sequence[Read]) -> Iterator[Anomaly]:
    seen = {(read.partition, read.value) for read in reads}
    highest: dict[int, int] = defaultdict(lambda: -1)
    for read in reads:
        highest[read.partition] = max(highest[read.partition], read.offset)
    for each in sent:
        if each.outcome is not Outcome.OK or (each.partition, each.value) in seen:
            continue
        late = each.offset is not None and each.offset > highest[each.partition]
        yield Anomaly("unseen" if late else "lost-write",
                      f"partition {each.partition}: {each.value} acknowledged at {each.offset}")


def _not_sent(sent: Sequence[Sent], reads: Sequence[Read]) -> Iterator[Anomaly]:
    outcomes = {(each.partition, each.value): each.outcome for each in sent}
    for partition, offset, value in reads:
        outcome = outcomes.get((partition, value))
        if outcome is None:
            yield Anomaly("phantom-read", f"partition {partition} offset {offset}: {value}")
        elif outcome is Outcome.FAILED:
            yield Anomaly("aborted-read", f"partition {partition} offset {offset}: {value}")


def _order_of_sends(sent: Sequence[Sent], reads: Sequence[Read]) -> Iterator[Anomaly]:
    offsets = {(each.partition, each.value): each.offset for each in _observed(sent, reads)}
    last: dict[tuple[str, int], tuple[int, str]] = {}
    for each in sent:
        offset = offsets.get((each.partition, each.value))
        if offset is None:
            continue
        before = last.get((each.sender, each.partition))
        if before is not None and offset < before[0]:
            yield Anomaly("nonmonotonic-send", f"{each.sender}, partition {each.partition}: "
                          f"{each.value} at {offset} after {before[1]} at {before[0]}")
        last[each.sender, each.partition] = (offset, each.value)


def _order_of_reads(reader: Sequence[Read]) -> Iterator[Anomaly]:
    last: dict[int, int] = {}
    for partition, offset, value in reader:
        before = last.get(partition)
        if before is not None and offset <= before:
            yield Anomaly("nonmonotonic-poll",
                          f"partition {partition}: {value} at {offset} after {before}")
        elif before is not None and offset > before + 1:
            yield Anomaly("poll-skip",
                          f"partition {partition}: {value} at {offset} after {before}")
        last[partition] = offset
