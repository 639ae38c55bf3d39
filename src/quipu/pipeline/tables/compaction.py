"""Decides when runs are merged and data files rewritten: pure, from counts alone.

Runs.  A run belongs to a class by its size, each class `FANOUT` times the one below.  When the
newest runs up to some class have `FANOUT` of that class, they become one.  An entry is rewritten
once for each class; a bucket of n entries in batches of b has at most FANOUT * log(n / b) runs.

Data.  Rows are rewritten for two reasons: too many rows of the bucket are dead, or it has too
many files.  The files with most dead rows are rewritten first, and no merge rewrites many more rows
than its batch has (`RELOCATED_FACTOR`), so the work depends on the batch and not on the table.
Rewritten rows are added to the data of the batch, so files grow.
"""

from collections.abc import Sequence

from quipu.pipeline.tables.contract import DataRef

FANOUT = 4
RUN_SIZE_MIN = 1024  # smaller runs are all of one class
FILES_MAX = 48  # data files of a bucket
FILES_MERGED = 16  # the number of smallest files that become one if there are too many
DEAD_SHARE_MAX = 0.67  # of the rows of a bucket: disk is cheaper than writing twice
DEAD_ROWS_MIN = 4096  # fewer dead rows are not worth the work
RELOCATED_FACTOR = 2  # rows rewritten for each row of the batch, at most
RELOCATED_MIN = 16_384  # rows that a merge may always rewrite


def runs_to_merge(sizes: Sequence[int]) -> int:
    """How many of the newest runs (sizes newest first) to merge into one; less than 2: none."""
    classes = [_class(size) for size in sizes]
    merged = 0
    for index, each in enumerate(classes):
        front = classes[:index + 1]
        if each == max(front) and front.count(each) >= FANOUT:
            merged = index + 1
    return merged


def _class(size: int) -> int:
    found = 0
    while size >= RUN_SIZE_MIN * FANOUT:
        size //= FANOUT
        found += 1
    return found


def files_to_rewrite(data: Sequence[DataRef], batch_rows: int, bucket: int) -> list[DataRef]:
    """The data files to rewrite with a batch of `batch_rows` rows.

    Files in which all rows are dead are not among them: they are dropped without rewriting.
    """
    living = [each for each in data if each.dead < each.rows]
    budget = max(RELOCATED_FACTOR * batch_rows, RELOCATED_MIN)
    chosen: list[DataRef] = []
    rows, dead = sum(each.rows for each in living), sum(each.dead for each in living)
    for each in sorted(living, key=lambda ref: ref.dead / ref.rows, reverse=True):
        if dead <= max(DEAD_SHARE_MAX * rows, DEAD_ROWS_MIN) or budget <= 0:
            break
        chosen.append(each)
        rows, dead = rows - each.dead, dead - each.dead
        budget -= each.rows - each.dead
    left = [each for each in living if each not in chosen]
    # buckets grow alike: the bucket's number spreads their rewrites over several batches
    if len(left) > FILES_MAX + bucket % FILES_MERGED:
        left.sort(key=lambda ref: ref.rows - ref.dead)
        chosen += left[:FILES_MERGED]
    return chosen
