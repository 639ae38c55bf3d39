"""The offsets of a batch, divided among tasks.

A task that runs Python takes tens of milliseconds before it reads anything, so a batch gets as many
tasks as there are cores, and fewer if there is little to read.  A task may have a part of a
partition, or several partitions.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from quipu.client.ranges import Range
from quipu.model.ids import TopicPartition
from quipu.pipeline.reading.positions import Positions, total

TASK_OFFSETS_MIN: Final = 20_000  # fewer are read faster by one task than by two
TASKS_MAX: Final = 100_000

Task = tuple[Range, ...]


class Sharing(NamedTuple):
    """What decides the number of tasks."""

    cores: int = 1
    tasks_min: int | None = None  # minPartitions
    task_offsets_max: int | None = None  # maxRecordsPerPartition


def limited(
    start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], limit: int
) -> Positions:
    """The end of a batch of about `limit` offsets, divided in proportion to what partitions have.

    A partition with new records gets at least one, so that busy ones do not starve the others.
    """
    sizes = {partition: max(end - start.get(partition, end), 0)
             for partition, end in latest.items()}
    available = sum(sizes.values())
    if available <= limit:
        return dict(latest)
    return {
        partition: start[partition] + max(limit * size // available, 1) if size else end
        for (partition, end), size in zip(latest.items(), sizes.values(), strict=True)
    }


def shared_out(ranges: Sequence[Range], sharing: Sharing) -> list[Task]:
    """Divide ranges into tasks of nearly equal size; no partition is twice in one task."""
    offsets = total(ranges)
    if not offsets:
        return []
    count = min(max(sharing.cores, 1), -(-offsets // TASK_OFFSETS_MIN))
    if sharing.tasks_min is not None:
        count = max(count, sharing.tasks_min)
    if sharing.task_offsets_max is not None:
        count = max(count, -(-offsets // sharing.task_offsets_max))
    return _cut(ranges, min(count, offsets, TASKS_MAX), offsets)


def _cut(ranges: Sequence[Range], count: int, offsets: int) -> list[Task]:
    """Cut the sequence of all ranges at equal distances: sizes of tasks differ by at most one."""
    cuts = [offsets * number // count for number in range(1, count + 1)]
    tasks: list[Task] = []
    task: list[Range] = []
    position = 0  # in the sequence of all ranges
    for each in ranges:
        first = each.first
        while first < each.end:
            taken = min(each.end - first, cuts[len(tasks)] - position)
            task.append(each._replace(first=first, end=first + taken))
            first += taken
            position += taken
            if position == cuts[len(tasks)]:
                tasks.append(tuple(task))
                task = []
    return tasks
