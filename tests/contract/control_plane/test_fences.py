"""Keys that were given up are never committed (diskless.C10), and whose a control plane is."""

import asyncio
import random
from uuid import UUID

import pytest

from quipu.diskless.control_plane.belonging import belong
from quipu.diskless.control_plane.fences import fence_of
from quipu.diskless.control_plane.interface import Replacement
from quipu.diskless.errors import ForeignControlPlane
from quipu.diskless.objects.names import ObjectName
from quipu.diskless.values import NewObject
from quipu.model.errors import Code
from quipu.model.ids import NodeId, Offset
from tests.contract.control_plane.planes import (
    NOW,
    PlaneUnderTest,
    accepted,
    all_runs,
    batch,
    opened,
    refused,
    stored,
    with_logs,
)
from tests.looped import looped

RACES = 40
REFUSED = refused(Code.KAFKA_STORAGE_ERROR)


def key(sequence: int, writer: int = 1) -> str:
    return ObjectName(NodeId(1), UUID(int=writer), sequence).key


@looped
async def test_a_condemned_object_is_never_committed(under_test: PlaneUnderTest) -> None:
    """D7: nor any that its writer stored before it; those after it, and other writers', are."""
    async with with_logs(under_test) as (plane, [log]):
        assert await plane.condemn_objects([key(5), key(3)]) == {key(5), key(3)}
        assert await plane.condemn_objects([key(5)]) == {key(5)}  # once more, after a crash
        for sequence in (5, 3, 4, 0):
            assert await plane.commit(
                stored(batch(log), batch(log), key=key(sequence)), NOW) == [REFUSED, REFUSED]
        assert await plane.commit(stored(batch(log), key=key(6)), NOW) == [accepted(0)]
        assert await plane.commit(stored(batch(log), key=key(2, writer=2)), NOW) == [accepted(1)]
        assert {each.key for each in await plane.objects()} == {key(6), key(2, writer=2)}
    async with opened(under_test) as plane:  # it is durable
        assert await plane.commit(stored(batch(log), key=key(5)), NOW) == [REFUSED]
        assert len(await all_runs(plane, log)) == 2


@looped
async def test_a_known_object_is_not_condemned(under_test: PlaneUnderTest) -> None:
    """D7: neither one in use nor one that is marked; a repeated commit returns what it did."""
    async with with_logs(under_test) as (plane, [log]):
        used, marked = stored(batch(log), key=key(1)), stored(key=key(2))
        await plane.commit(used, NOW)
        await plane.commit(marked, NOW)
        assert await plane.condemn_objects([key(1), key(2), key(9)]) == {key(9)}
        assert await plane.commit(used, NOW) == [accepted(0)]
        assert await plane.deletable_objects(NOW + 1, 10) == [key(2)]
        assert len(await all_runs(plane, log)) == 1


@looped
async def test_a_forgotten_object_is_never_committed_again(under_test: PlaneUnderTest) -> None:
    """D3: a commit that is repeated after the object was deleted gives no offsets."""
    async with with_logs(under_test) as (plane, [log]):
        new = stored(batch(log), key=key(7))
        await plane.commit(new, NOW)
        await plane.forget_objects([new.key])  # ignored: it is in use
        assert await plane.commit(new, NOW) == [accepted(0)]
        await plane.delete_records(log, Offset(-1), NOW)
        await plane.forget_objects([new.key, new.key, key(8)])
        assert await plane.known_objects([new.key]) == set()
        assert await plane.commit(new, NOW) == [REFUSED]
        assert await plane.commit(stored(batch(log), key=key(8)), NOW) == [accepted(1, 1)]


@looped
async def test_nothing_moves_to_a_condemned_object(under_test: PlaneUnderTest) -> None:
    """D7: a rewrite that comes too late is refused, and so is a rebuild that saw the object."""
    async with with_logs(under_test) as (plane, [log]):
        await plane.commit(stored(batch(log), key=key(1)), NOW)
        [run] = await all_runs(plane, log)
        await plane.condemn_objects([key(3, writer=2)])
        new = NewObject(key(3, writer=2), NodeId(1), 200, [])
        assert not await plane.rewrite(new, [Replacement(run, new.key, 10)], NOW)
        late = stored(batch(log), key=key(2, writer=2))
        await plane.restore_objects([(late, [Offset(1)])], NOW)
        assert await all_runs(plane, log) == [run]
        assert await plane.known_objects([new.key, late.key]) == set()


@looped
async def test_a_commit_and_its_condemnation_race_and_one_wins(under_test: PlaneUnderTest) -> None:
    """D7: whichever is first, the object is in use and stays, or is refused and may be deleted."""
    async with with_logs(under_test) as (plane, [log]), opened(under_test) as other:
        wins = 0
        for index in range(RACES):
            new = stored(batch(log), key=key(0, writer=100 + index))
            commit = plane.commit(new, NOW)
            condemn = other.condemn_objects([new.key])
            if index % 2:
                [outcome], condemned = await asyncio.gather(commit, condemn)
            else:
                condemned, [outcome] = await asyncio.gather(condemn, commit)
            assert (outcome.code is Code.NONE) is (condemned == set()), (outcome, condemned)
            wins += outcome.code is Code.NONE
        assert sum(run.batch_count for run in await all_runs(plane, log)) == wins


@looped
async def test_any_key_can_be_fenced(under_test: PlaneUnderTest) -> None:
    """D7: all control planes agree on which keys a fence refuses, whatever the keys look like."""
    chance = random.Random(1)
    digits = ["0" * 16, "00000000000000ff", "7" + "f" * 15, "8" + "0" * 15, "f" * 16, "0" * 15,
              "0" * 17, "00000000000000FF", "zz"]
    names = ["a", "a-b", "", "=", "ä'\"\\", "1-2", "a b", "="]
    keys = [f"{prefix}{name}-{number}" for prefix in ("", "x/", "x/y-0000000000000001/")
            for name in names for number in digits]
    async with with_logs(under_test) as (plane, [log]):
        fences: dict[str, int] = {}
        for condemned in chance.sample(keys, 20):
            await plane.condemn_objects([condemned])
            writer, sequence = fence_of(condemned)
            fences[writer] = max(sequence, fences.get(writer, sequence))
        for each in chance.sample(keys, 60):
            writer, sequence = fence_of(each)
            [outcome] = await plane.commit(stored(batch(log), key=each), NOW)
            is_fenced = sequence <= fences.get(writer, -1)
            assert (outcome.code is Code.NONE) is not is_fenced, each


@looped
async def test_a_control_plane_keeps_its_identity(under_test: PlaneUnderTest) -> None:
    """D37: every node sees the same one, also after a restart."""
    async with opened(under_test) as plane, opened(under_test) as other:
        identity = await plane.identity()
        assert await other.identity() == identity
    async with opened(under_test) as plane:
        assert await plane.identity() == identity


@looped
async def test_a_control_plane_belongs_to_the_first_cluster_that_binds_it(
    under_test: PlaneUnderTest
) -> None:
    """diskless.C11: for ever; another cluster is told both ids, and what to do."""
    async with opened(under_test) as plane, opened(under_test) as other:
        assert await plane.bind("one") == "one"
        assert await other.bind("two") == "one"
        await belong(plane, "one")
    async with opened(under_test) as plane:
        assert await plane.bind("three") == "one"
        with pytest.raises(ForeignControlPlane, match=r"cluster one.*cluster two.*of its own"):
            await belong(plane, "two")


@looped
async def test_of_clusters_that_bind_at_once_one_wins(under_test: PlaneUnderTest) -> None:
    """diskless.C11: all of them are told the same one."""
    planes = [under_test.client() for _ in range(6)]
    for plane in planes:
        await plane.open()
    bound = await asyncio.gather(*(
        plane.bind(f"cluster {number}") for number, plane in enumerate(planes)))
    for plane in planes:
        await plane.close()
    assert len(set(bound)) == 1
