"""The writer of a shard's log: its order, its bound, and when it takes snapshots."""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from quipu.broker.coordinators import command_writer
from quipu.broker.coordinators.command_writer import QUEUE_SIZE_MAX, CommandWriter
from quipu.model.errors import RequestError
from quipu.storage.state_log import COMMAND_SIZE
from tests.broker.groups.brokers import settle


class SlowLog:
    """A log whose writes wait until they are let through, and whose snapshots may fail."""

    must_snapshot = False

    def __init__(self) -> None:
        self.commands_size = 0
        self.written: list[bytes] = []
        self.snapshots = 0
        self.fails = False
        self.gate = asyncio.Event()
        self.gate.set()

    def size_of(self, command: bytes) -> int:
        return len(command)

    async def load(self, apply: Callable[[bytes], None]) -> None:
        """There is nothing."""

    async def append(self, commands: Sequence[bytes]) -> None:
        await self.gate.wait()
        self.written += commands
        self.commands_size += sum(COMMAND_SIZE + len(command) for command in commands)

    async def snapshot(self, commands: Iterable[bytes]) -> None:
        self.snapshots += 1
        if self.fails:
            raise RequestError("the disk is full")
        list(commands)
        self.commands_size = 0

    def close(self) -> None:
        """Nothing to close."""


def ignore(error: Exception | None) -> None:
    """Whatever became of it."""


def test_what_waits_is_bounded() -> None:
    """K8: a full queue says so, and has room again later (broker.coordinators.W4)."""
    async def run() -> None:
        slow = SlowLog()
        slow.gate.clear()
        log = CommandWriter("groups-0", slow, list)
        while not log.is_full:
            log.append([b"x" * (8 << 20)], ignore)
        await settle()
        assert log.is_full
        assert log._queue_size <= QUEUE_SIZE_MAX + (8 << 20)
        slow.gate.set()
        await log.drained()
        assert not log.is_full
        assert log._queue_size == 0

    asyncio.run(run())


def test_a_snapshot_that_fails_is_not_tried_for_every_append() -> None:
    """K8: on a full disk each try writes all of the state: the next is due as if it had worked."""
    async def run() -> None:
        slow = SlowLog()
        slow.fails = True
        log = CommandWriter("groups-0", slow, list, snapshot_size=10_000)
        for _ in range(200):
            log.append([b"x" * 100], ignore)
            await log.drained()
        size = 200 * (COMMAND_SIZE + 100)
        assert slow.snapshots == size // 10_000 or slow.snapshots == size // 10_000 - 1
        slow.fails = False
        for _ in range(40):
            log.append([b"x" * 100], ignore)
            await log.drained()
        assert slow.commands_size < 10_000 + COMMAND_SIZE + 100

    asyncio.run(run())


def test_snapshots_come_as_often_as_they_are_worth() -> None:
    """T7: a large state is written anew when as much has come after it, and no sooner."""
    # Shows broker.coordinators.W3.
    async def run() -> None:
        slow = SlowLog()
        log = CommandWriter("groups-0", slow, lambda: [b"y" * 50_000], snapshot_size=1_000)
        for _ in range(300):
            log.append([b"x" * 744], ignore)
            await log.drained()
        assert slow.snapshots in (6, 7)  # the first after 1,000 bytes, then after some 50,000 each

    asyncio.run(run())


def test_the_writer_takes_a_bounded_amount_at_once() -> None:
    """K8: what is more than BATCH_SIZE_MAX is written in turns, in order."""
    async def run() -> None:
        slow = SlowLog()
        log = CommandWriter("groups-0", slow, list)
        done: list[int] = []
        for number in range(10):
            log.append([bytes([number]) * command_writer.BATCH_SIZE_MAX],
                       lambda error, number=number: done.append(number))  # type: ignore[misc]
        await log.drained()
        assert done == list(range(10))
        assert [command[0] for command in slow.written] == list(range(10))

    asyncio.run(run())
