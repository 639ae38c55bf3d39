"""What an event costs, counted in calls and keys: the same, however many segments there are."""

import pytest

from quipu.remote.metadata.segment_metadata import TopicIdPartition
from quipu.remote.metadata.states import COPY_FINISHED, DELETE_FINISHED, DELETE_STARTED
from quipu.remote.metadata.storage.memory import MemoryBackend
from tests.looped import looped
from tests.remote.metadata.segments import fresh_partition, segment, update
from tests.remote.metadata.world import FailingBackend, failing, manager_of

Cost = tuple[int, int, int]  # calls, operations, entries read


async def _fill(store: FailingBackend, partition: TopicIdPartition, count: int) -> None:
    manager = await manager_of(store)
    await manager.on_partition_leadership_changes({partition: 0}, [])
    for n in range(count):
        added = segment(partition, 100 * n, 100 * n + 99, {3: 100 * n, 4: 100 * n + 50})
        await manager.add_remote_log_segment_metadata(added)
        await manager.update_remote_log_segment_metadata(update(added, COPY_FINISHED))


async def _costs(count: int) -> dict[str, Cost]:
    store, partition = failing(MemoryBackend()), fresh_partition()
    await _fill(store, partition, count)
    leader, follower = await manager_of(store), await manager_of(store)
    await leader.on_partition_leadership_changes({partition: 1}, [])
    await follower.on_partition_leadership_changes({}, [partition])
    costs: dict[str, Cost] = {}

    def note(name: str) -> None:
        costs[name] = (store.calls, store.operations, store.entries_read)
        store.calls = store.operations = store.entries_read = 0

    note("taking over")
    end = 100 * count
    added = segment(partition, end, end + 99, {3: end, 4: end + 50})
    await leader.add_remote_log_segment_metadata(added)
    note("add")
    for state in (COPY_FINISHED, DELETE_STARTED, DELETE_FINISHED):
        await leader.update_remote_log_segment_metadata(update(added, state))
        note(state.name)
    assert await follower.remote_log_segment_metadata(partition, 3, 120) is not None
    note("a follower's lookup")
    assert await follower.highest_offset_for_epoch(partition, 3) is not None
    note("a follower's highest offset")
    assert await leader.remote_log_segment_metadata(partition, 3, 120) is not None
    assert await leader.remote_log_size(partition, 3) == count << 20
    note("a leader's reads")
    return costs


@looped
async def test_an_event_costs_the_same_with_any_number_of_segments() -> None:
    """R6: in calls, operations and entries read; two leader epochs cost what they cost."""
    few, many = await _costs(5), await _costs(1500)
    assert few.pop("taking over") < many.pop("taking over")
    assert few == many
    assert few == {
        "add": (1, 4, 0),  # expected header, segment, an entry in each epoch
        "COPY_SEGMENT_FINISHED": (1, 8, 0),  # in each epoch: reference, unreferenced, highest
        "DELETE_SEGMENT_STARTED": (1, 6, 0),
        "DELETE_SEGMENT_FINISHED": (1, 4, 0),
        "a follower's lookup": (2, 0, 2),
        "a follower's highest offset": (1, 0, 1),
        "a leader's reads": (0, 0, 0),
    }


@pytest.mark.parametrize("count", [1, 40])
@looped
async def test_a_segment_that_replaces_others_pays_once_for_each(count: int) -> None:
    """R6: an entry is written when a segment is replaced, and never again."""
    store, partition = failing(MemoryBackend()), fresh_partition()
    await _fill(store, partition, count)
    manager = await manager_of(store)
    await manager.on_partition_leadership_changes({partition: 1}, [])
    merged = segment(partition, 0, 100 * count + 9, {3: 0})
    await manager.add_remote_log_segment_metadata(merged)
    store.operations = 0
    await manager.update_remote_log_segment_metadata(update(merged, COPY_FINISHED))
    # Header, segment, reference, unreferenced, highest; then a reference and an entry for each.
    assert store.operations == 5 + 2 * count - 1
