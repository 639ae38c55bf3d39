"""Runs functions in tasks on executors and collects their results, which must be small.

    run(spark, [partial(work, 1), partial(work, 2)])     # each in a task of its own

No query is planned for it, which would take longer than a small task.  Spark may run a task again,
or discard its result: files that tasks write must not count before the driver commits them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from pyspark.sql import SparkSession

_T = TypeVar("_T")


def run(spark: SparkSession, works: Sequence[Callable[[], Iterable[_T]]]) -> list[_T]:
    """Call each function in a task of its own; returns all results, in order."""
    count = len(works)
    if count == 0:
        return []

    def task(numbers: Iterable[int]) -> Iterator[_T]:
        for number in numbers:
            yield from works[number]()

    return spark.sparkContext.parallelize(range(count), count).mapPartitions(task).collect()
