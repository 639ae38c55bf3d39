"""When runs are merged and files rewritten: bounds on work and on what is left lying."""

import math
import random

from hypothesis import given
from hypothesis import strategies as st

from quipu.pipeline.tables import compaction
from quipu.pipeline.tables.compaction import files_to_rewrite, runs_to_merge
from quipu.pipeline.tables.contract import DataRef


@given(st.integers(1, 20_000), st.integers(1, 300))
def test_runs_stay_few_and_entries_are_rewritten_seldom(size: int, batches: int) -> None:
    sizes: list[int] = []
    written = 0
    for _ in range(batches):
        sizes.insert(0, size)
        count = runs_to_merge(sizes)
        if count > 1:
            sizes[:count] = [sum(sizes[:count])]
            written += sizes[0]
        classes = 1 + math.log(max(sum(sizes) / compaction.RUN_SIZE_MIN, 1), compaction.FANOUT)
        assert len(sizes) <= compaction.FANOUT * (classes + 1)
    assert sum(sizes) == size * batches  # no run is lost
    small = compaction.RUN_SIZE_MIN * compaction.FANOUT * batches  # a little, whatever the batch
    assert written <= size * batches * (2 + math.log(batches, compaction.FANOUT)) + small


def test_a_run_that_grows_old_is_left_alone() -> None:
    assert runs_to_merge([100, 100, 10_000_000]) == 0
    assert runs_to_merge([100] * compaction.FANOUT + [10_000_000]) == compaction.FANOUT
    assert runs_to_merge([]) == 0


def test_dead_rows_and_files_are_bounded_and_so_is_the_work() -> None:
    """Random updates of a table, file by file, for a long time."""
    rng = random.Random(4)
    keys, batch = 20_000, 1000
    home: dict[int, int] = {}  # key: number of its file
    files: dict[int, list[int]] = {}  # number: rows, dead
    relocated = 0
    for number in range(120):
        chosen = rng.sample(range(keys), batch)
        for key in chosen:
            if key in home:
                files[home[key]][1] += 1
            home[key] = number
        files = {each: counts for each, counts in files.items() if counts[1] < counts[0]}
        refs = [DataRef(each, "", *counts) for each, counts in files.items()]
        victims = {each.number for each in files_to_rewrite(refs, batch, bucket=3)}
        moved = [key for key, where in home.items() if where in victims]
        for key in moved:
            home[key] = number
        files = {each: counts for each, counts in files.items() if each not in victims}
        files[number] = [batch + len(moved), 0]
        relocated += len(moved)
        rows, dead = (sum(counts[index] for counts in files.values()) for index in (0, 1))
        assert rows - dead == len(home)
        assert dead <= max(0.7 * rows, compaction.DEAD_ROWS_MIN + 2 * batch)
        assert len(files) <= compaction.FILES_MAX + compaction.FILES_MERGED + 1
    assert relocated < 120 * batch * 2


def test_files_without_a_living_row_are_nobodys_work() -> None:
    assert files_to_rewrite([DataRef(0, "", 100_000, 100_000)], 1, 0) == []


def test_one_merge_does_not_rewrite_the_table() -> None:
    """The work follows the batch, even if everything is due."""
    refs = [DataRef(number, "", 10_000, 9000) for number in range(1000)]
    victims = files_to_rewrite(refs, 1000, bucket=0)

    living = sum(each.rows - each.dead for each in victims)
    assert 1000 <= living <= compaction.RELOCATED_MIN + (compaction.FILES_MERGED + 1) * 1000
