"""The simulated control plane: operations once or not at all, bounded calls, announcements."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from uuid import UUID

import pytest

from quipu.diskless.control_plane.memory import MemoryControlPlane
from quipu.diskless.errors import CommitOutcomeUnknown, ControlPlaneUnavailable
from quipu.diskless.values import BatchCoordinates, LogKey, NewObject
from quipu.model.ids import NodeId, Offset, TimestampMs
from quipu.sim.twins.control_plane import (
    PLANE_HOST,
    TIMEOUT_SECONDS,
    PlaneFaults,
    SimDatabase,
    SimPlane,
)
from quipu.sim.world import World

TOPIC = UUID(int=7)
LOG = LogKey(TOPIC, 0)


class Database:
    """A world with a control plane, and work that is done in it."""

    def __init__(self) -> None:
        self.world = World(1)
        self.database = SimDatabase(
            self.world.net, self.world.dice.fork("plane"), MemoryControlPlane())
        self.plane = self.client("a")
        self.run(self.plane.open)
        self.run(lambda: self.plane.create_logs(TOPIC, "t", 1))

    def client(self, host: str) -> SimPlane:
        return self.database.client(self.world.net.door(self.world.outside, host))

    def run(self, work: Callable[[], Awaitable[object]], *, seconds: float = 20.0) -> None:
        done: list[bool] = []

        async def all_of_it() -> None:
            await work()
            done.append(True)

        self.world.run(all_of_it(), "test")
        self.world.run_until(lambda: bool(done), seconds, "done")

    def high_watermark(self) -> int:
        found = self.database.now(self.database.plane.bounds([LOG]))[0]
        assert found is not None
        return int(found.high_watermark)


@pytest.fixture
def database() -> Iterator[Database]:
    database = Database()
    yield database
    database.world.end()


def an_object(number: int) -> NewObject:
    return NewObject(f"objects/00/1-{'0' * 32}-{number:016x}", NodeId(1), 200, (
        BatchCoordinates(LOG, 16, 100, 3, TimestampMs(1)),))


def test_an_operation_whose_response_is_lost_was_carried_out_once(database: Database) -> None:
    """V22: sim.P1, sim.P2; its caller does not know that, and may ask again."""
    database.database.faults = PlaneFaults(lose_answer=1.0)

    async def commit() -> None:
        with pytest.raises(CommitOutcomeUnknown):
            await database.plane.commit(an_object(0), 1)

    database.run(commit)
    assert database.high_watermark() == 3
    database.database.faults = PlaneFaults()
    database.run(lambda: database.plane.commit(an_object(0), 1))
    assert database.high_watermark() == 3


def test_a_refused_operation_has_no_effect(database: Database) -> None:
    """V22: sim.P2."""
    database.database.faults = PlaneFaults(refuse=1.0)

    async def commit() -> None:
        with pytest.raises(ControlPlaneUnavailable) as raised:
            await database.plane.commit(an_object(0), 1)
        assert not isinstance(raised.value, CommitOutcomeUnknown)

    database.run(commit)
    assert database.high_watermark() == 0


def test_an_operation_may_be_carried_out_after_its_caller_gave_up(database: Database) -> None:
    """V22: sim.P1, sim.P2; a cut link holds it back."""
    net = database.world.net
    net.cut("a", PLANE_HOST)

    async def commit() -> None:
        began = database.world.loop.now
        with pytest.raises(CommitOutcomeUnknown):
            await database.plane.commit(an_object(0), 1)
        assert database.world.loop.now - began == pytest.approx(TIMEOUT_SECONDS, abs=0.1)

    database.run(commit)
    assert database.high_watermark() == 0
    net.mend("a", PLANE_HOST)
    database.world.run_for(1.0)
    assert database.high_watermark() == 3


def test_commits_are_announced_and_lost_announcements_made_known(database: Database) -> None:
    """V22: sim.P3."""
    other, heard = database.client("b"), list[tuple[LogKey | None, int]]()
    other.watch(lambda log, end: heard.append((log, int(end))))
    database.run(other.open)
    database.world.run_for(1.0)
    assert heard == [(None, -1)]
    database.run(lambda: database.plane.commit(an_object(0), 1))
    database.world.run_for(1.0)
    assert heard[1:] == [(LOG, 3)]
    database.database.drop_listeners()

    async def commit() -> None:
        await asyncio.sleep(0.05)
        await database.plane.commit(an_object(1), 1)

    database.run(commit)
    database.world.run_for(2.0)
    assert heard[2:] == [(None, -1)]
    assert Offset(database.high_watermark()) == 6
