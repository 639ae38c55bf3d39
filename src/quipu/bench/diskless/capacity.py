"""What diskless topics will cost: objects, transactions, bytes and rows for each GiB.  Pure.

    capacity(DisklessLoad(racks=3, partitions=12, batch_size=1000, batches_per_second=100.0))

Follows the writer (diskless/writing) and the reader (diskless/reading):

    * A broker collects batches until `flush_interval_ms` after the first one, or until they have
      `flush_bytes` or are `flush_batches`; that is one object, one put, and one commit.
    * After a commit the broker notifies the others, in a transaction of its own.
    * An object has a header, its batches, a footer with an entry for each log and batch, the
      receipt of the object before it, and a trailer.
    * The control plane has a row for each object, and one for each log in it: a run.
    * A broker holds what it has written.  Any other broker whose consumers are at the end asks
      where the batches of a new object are, once, and reads what it needs of the object, once.

Clients are in the racks, and talk to the replica in their own: each rack has one for every
partition, so its brokers share the partitions.  Batches come evenly, and in turn for the
partitions.

Invariant
    bench.C1  objects and their bytes are exactly those of the writer's own core, for batches that
              come so: tests/bench/test_capacity.py runs it

Not here: producers that stop and wait for answers (they are written earlier:
diskless/writing/buffer.py), objects of receipts alone, which a broker writes a second after its
last batch, reads of old records, clean-up.
"""

from dataclasses import dataclass
from math import ceil, floor
from typing import Final

from quipu.diskless.objects.footer import index_size, receipts_size
from quipu.diskless.writing.limits import WriterLimits

GIB: Final = 1 << 30
LIMITS: Final = WriterLimits()
ARRIVAL_SECONDS: Final = 1e-9  # batches that are due at the end of an interval come after it


@dataclass(frozen=True, slots=True, kw_only=True)
class DisklessLoad:
    """Who writes how much, and who reads it."""

    racks: int
    brokers_per_rack: int = 1
    reading_racks: int | None = None  # whose consumers read everything; None: all
    partitions: int
    batch_size: int  # bytes, as batches are sent
    batches_per_second: float  # that each broker gets
    flush_interval_ms: int = LIMITS.flush_interval_ms
    flush_bytes: int = LIMITS.flush_bytes
    flush_batches: int = LIMITS.flush_batches

    @property
    def brokers(self) -> int:
        """All of them."""
        return self.racks * self.brokers_per_rack


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What a load costs; all but the first four for each GiB that is produced."""

    batches_per_object: int
    logs_per_object: int
    object_size: int
    objects_per_second: float  # of all brokers
    puts: float
    put_bytes: float
    commits: float  # transactions that order objects
    notifications: float  # transactions that tell other brokers
    finds: float  # transactions that ask where batches are, of all brokers that read
    gets: float
    get_bytes: float
    object_rows: float
    run_rows: float

    @property
    def transactions(self) -> float:
        """All that follow from records."""
        return self.commits + self.notifications + self.finds


def capacity(load: DisklessLoad) -> Capacity:
    """What a load costs."""
    batches = batches_per_object(load)
    logs = min(batches, ceil(load.partitions / load.brokers_per_rack))
    data_size = batches * load.batch_size
    size = data_size + index_size(logs, batches) + receipts_size(1, batches, logs)
    objects = GIB / data_size
    gets = objects * _readers(load, logs)
    return Capacity(
        batches_per_object=batches, logs_per_object=logs, object_size=size,
        objects_per_second=load.brokers * load.batches_per_second / batches,
        puts=objects, put_bytes=objects * size, commits=objects, notifications=objects,
        finds=gets, gets=gets, get_bytes=GIB * _other_racks(load),
        object_rows=objects, run_rows=objects * logs)


def batches_per_object(load: DisklessLoad) -> int:
    """Those that come until the first bound is reached (bench.C1)."""
    interval = load.flush_interval_ms / 1000 - ARRIVAL_SECONDS
    return min(1 + floor(interval * load.batches_per_second),
               ceil(load.flush_bytes / load.batch_size), load.flush_batches)


def _other_racks(load: DisklessLoad) -> float:
    """Racks that read an object and are not its writer's, on average."""
    reading = load.racks if load.reading_racks is None else load.reading_racks
    return reading * (1 - 1 / load.racks)


def _readers(load: DisklessLoad, logs: int) -> float:
    """Brokers that read an object, on average: in each of those racks, those with its logs."""
    count = load.brokers_per_rack
    return _other_racks(load) * count * (1 - (1 - 1 / count) ** logs)
