"""Produce and Fetch over partitions whose results come late, through the real server.

Offsets of an append are known some turns after it, and bytes of a read are on their way first, as
with a remote tier or a diskless topic (tests/contract/partition_log/late.py).
"""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from quipu.broker.partitions.partitions import Partitions
from quipu.model.errors import Code
from quipu.wire.messages.k01_fetch import FetchResponse
from tests.broker.serving.test_fetch import fetch, values
from tests.contract.partition_log.late import LateLog
from tests.harness.here import NodeHere, batch_of, produce
from tests.looped import looped

VERSION = 12
MANY = 600  # partitions: more than a fetch or a produce may have to be served in one go


class LatePartitions:
    """A node's partitions, of which those that a test names are late."""

    def __init__(self, partitions: Partitions, is_late: Callable[[int], bool]) -> None:
        self._partitions = partitions
        self._is_late = is_late
        self.logs: dict[object, LateLog] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._partitions, name)

    def find(self, topic: str, partition: int) -> Any:
        return self.find_for_wire(topic, partition)

    def find_for_wire(self, topic: str | bytes, partition: int) -> Any:
        found = self._partitions.find_for_wire(topic, partition)
        if found is None or not self._is_late(partition):
            return found
        if found not in self.logs:
            self.logs[found] = LateLog(found)
        return self.logs[found]

    def all(self) -> Iterator[Any]:
        return self._partitions.all()

    @property
    def read_count(self) -> int:
        """Reads whose result came later."""
        return sum(log.read_count for log in self.logs.values())

    @property
    def kept_count(self) -> int:
        """Reads that a fetch still waits for, or holds."""
        return sum(len(log.reads) for log in self.logs.values())

    def hold(self, *, holds: bool = True) -> None:
        """Let no bytes arrive until `arrive`."""
        for log in self.logs.values():
            log.holds_reads = holds

    def arrive(self) -> None:
        for log in list(self.logs.values()):
            log.arrive()


def late(node: NodeHere, is_late: Callable[[int], bool] = lambda _: True) -> LatePartitions:
    """Make the partitions of `node` late."""
    broker = node.node.broker
    partitions = LatePartitions(broker.partitions, is_late)
    broker.partitions = cast("Partitions", partitions)
    return partitions


def offsets(response: Any) -> list[tuple[int, int]]:
    return [(part.error_code, part.base_offset)
            for topic in response.responses for part in topic.partition_responses]


def codes(response: FetchResponse) -> list[int]:
    return [part.error_code for topic in response.responses for part in topic.partitions]


async def waiting(node: NodeHere, partitions: LatePartitions) -> None:
    """Return once a fetch waits for bytes that are on their way."""
    async with asyncio.timeout(20):
        while not (node.node.stats.fetch_waiters and partitions.kept_count):
            await asyncio.sleep(0.001)


async def nothing_waits(node: NodeHere, partitions: LatePartitions) -> None:
    async with asyncio.timeout(20):
        while node.node.stats.fetch_waiters or partitions.kept_count:
            await asyncio.sleep(0.001)


@looped
async def test_a_produce_is_answered_when_its_offsets_are_known(tmp_path: Path) -> None:
    """model.P1: one batch, several, pipelined: responses in order, with the right offsets."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t", 3)
        late(node, lambda number: number != 1)
        for count in range(4):
            peer.send(produce("t", batch_of(b"a", b"b"), acks=(-1, 1)[count % 2]), 9)
        responses = [await peer.answer() for _ in range(4)]
        assert [offsets(response) for response in responses] == [[(0, 2 * n)] for n in range(4)]
        several = await peer.ask(produce("t", batch_of(b"x"), batch_of(b"y"), batch_of(b"z")), 9)
        assert offsets(several) == [(0, 8), (0, 0), (0, 0)]
        assert node.node.stats.produced_records == 11


@looped
async def test_a_batch_that_is_refused_late_is_answered_so(tmp_path: Path) -> None:
    """model.P1: an error that comes with the completion is one of its partition alone."""
    damaged = batch_of(b"damaged")
    damaged[-1] ^= 1
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t", 2)
        late(node)
        alone = await peer.ask(produce("t", damaged), 9)
        assert offsets(alone) == [(Code.CORRUPT_MESSAGE, -1)]
        both = await peer.ask(produce("t", damaged, batch_of(b"good")), 9)
        assert offsets(both) == [(Code.CORRUPT_MESSAGE, -1), (0, 0)]
        assert node.node.stats.request_errors[0, Code.CORRUPT_MESSAGE] == 2
        peer.send(produce("t", batch_of(b"unasked"), acks=0), 9)
        peer.send(produce("t", damaged, acks=0), 9)
        assert await peer.closed()


@looped
async def test_a_large_produce_waits_for_all_outcomes(tmp_path: Path) -> None:
    """model.P1: of hundreds of partitions, some late, some not."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t", MANY)
        late(node, lambda number: number % 3 != 0)
        response = await peer.ask(produce("t", *[batch_of(b"x")] * MANY), 9)
        assert offsets(response) == [(0, 0)] * MANY


@looped
async def test_a_fetch_waits_for_bytes_that_are_on_their_way(tmp_path: Path) -> None:
    """model.P5: one request brings them, and nothing of them is held afterwards."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t", 2)
        await peer.ask(produce("t", batch_of(b"a"), batch_of(b"b")), 9)
        partitions = late(node)
        response = await peer.ask(fetch(0, 0, max_wait=20_000), VERSION)
        assert [values(response, number) for number in (0, 1)] == [[b"a"], [b"b"]]
        assert (partitions.read_count, partitions.kept_count) == (2, 0)
        assert node.node.stats.fetch_waiters == 0
        at_end = await peer.ask(fetch(1, 1, max_wait=20), VERSION)
        assert [values(at_end, number) for number in (0, 1)] == [[], []]
        assert partitions.read_count == 2


@looped
async def test_what_is_still_on_its_way_after_the_wait_is_empty(tmp_path: Path) -> None:
    """Without an error, and with the bounds; records of other partitions are not lost."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t", 2)
        await peer.ask(produce("t", batch_of(b"late"), batch_of(b"here")), 9)
        partitions = late(node, lambda number: number == 0)
        await peer.ask(fetch(0, max_wait=0), VERSION)
        assert partitions.kept_count == 0  # no wait: not kept for nobody
        partitions.hold()
        response = await peer.ask(fetch(0, 0, max_wait=50), VERSION)
        assert codes(response) == [0, 0]
        assert [values(response, number) for number in (0, 1)] == [[], [b"here"]]
        assert response.responses[0].partitions[0].high_watermark == 1
        assert partitions.kept_count == 0
        partitions.hold(holds=False)
        assert values(await peer.ask(fetch(0, max_wait=20_000), VERSION)) == [b"late"]


@looped
async def test_records_that_come_meanwhile_do_not_end_the_wait_for_bytes(tmp_path: Path) -> None:
    """Else a busy partition would keep a tiered one from ever being read."""
    async with NodeHere(tmp_path) as node, node.connect() as peer, node.connect() as other:
        await node.create("t", 2)
        await peer.ask(produce("t", batch_of(b"late")), 9)
        partitions = late(node, lambda number: number == 0)
        await peer.ask(fetch(0, max_wait=0), VERSION)
        partitions.hold()
        peer.send(fetch(0, 0, max_wait=20_000), VERSION)
        await waiting(node, partitions)
        await other.ask(produce("t", None, batch_of(b"new")), 9)
        assert node.node.stats.fetch_waiters == 1
        partitions.arrive()
        response = await peer.answer()
        assert [values(response, number) for number in (0, 1)] == [[b"late"], [b"new"]]


@looped
async def test_an_error_is_told_at_once(tmp_path: Path) -> None:
    """A client hears of a partition that moved without waiting for another one's bytes."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t", 2)
        await peer.ask(produce("t", batch_of(b"late")), 9)
        partitions = late(node, lambda number: number == 0)
        await peer.ask(fetch(0, max_wait=0), VERSION)
        partitions.hold()
        response = await peer.ask(fetch(0, 99, max_wait=20_000), VERSION)
        assert codes(response) == [0, Code.OFFSET_OUT_OF_RANGE]
        assert partitions.kept_count == 0


@looped
async def test_a_client_that_goes_lets_go_of_its_bytes(tmp_path: Path) -> None:
    """K8: a hostile client cannot have bytes fetched and kept for nobody."""
    async with NodeHere(tmp_path) as node:
        await node.create("t")
        async with node.connect() as peer:
            await peer.ask(produce("t", batch_of(b"late")), 9)
            partitions = late(node)
            await peer.ask(fetch(0, max_wait=0), VERSION)
            partitions.hold()
            peer.send(fetch(0, max_wait=20_000), VERSION)
            await waiting(node, partitions)
        await nothing_waits(node, partitions)
        partitions.arrive()


@looped
async def test_a_node_that_stops_responds_with_what_has_arrived(tmp_path: Path) -> None:
    """A wait for bytes ends as any other wait does."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t", 2)
        await peer.ask(produce("t", batch_of(b"late"), batch_of(b"here")), 9)
        partitions = late(node, lambda number: number == 0)
        await peer.ask(fetch(0, max_wait=0), VERSION)
        partitions.hold()
        peer.send(fetch(0, 0, max_wait=20_000), VERSION)
        await waiting(node, partitions)
        for waiter in list(node.node.broker.partitions.waiting):
            waiter.finish()
        assert values(await peer.answer(), 1) == [b"here"]
        assert partitions.kept_count == 0


@looped
async def test_sessions_are_served_with_late_bytes(tmp_path: Path) -> None:
    """An incremental fetch has a partition when its bytes have come, and only then."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t", 2)
        await peer.ask(produce("t", batch_of(b"a"), batch_of(b"b")), 9)
        partitions = late(node)
        first = await peer.ask(fetch(0, 0, max_wait=20_000, session_epoch=0), VERSION)
        assert [values(first, number) for number in (0, 1)] == [[b"a"], [b"b"]]
        session = first.session_id
        await peer.ask(fetch(
            1, 1, max_wait=0, session_id=session, session_epoch=1), VERSION)
        await peer.ask(produce("t", batch_of(b"c")), 9)
        partitions.hold()
        held = await peer.ask(fetch(
            max_wait=50, session_id=session, session_epoch=2), VERSION)
        assert held.error_code == 0
        assert [values(held)] == [[]]
        partitions.hold(holds=False)
        news = await peer.ask(fetch(
            max_wait=20_000, session_id=session, session_epoch=3), VERSION)
        assert values(news) == [b"c"]
        assert partitions.kept_count == 0


@looped
async def test_bytes_on_their_way_count_against_the_limits(tmp_path: Path) -> None:
    """K8: a fetch of many partitions has no more bytes fetched for it than it may be given."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t", 20)
        await peer.ask(produce("t", *[batch_of(b"x" * 100)] * 20), 9)
        partitions = late(node)
        response = await peer.ask(fetch(
            *[0] * 20, max_wait=20_000, max_bytes=500, part_bytes=200), VERSION)
        assert sum(bool(values(response, number)) for number in range(20)) == 2
        assert (partitions.read_count, partitions.kept_count) == (2, 0)


@looped
async def test_a_large_fetch_waits_for_late_bytes(tmp_path: Path) -> None:
    """The same for hundreds of partitions: bytes come, do not come in time, or are let go of."""
    async with NodeHere(tmp_path) as node:
        await node.create("t", MANY)
        async with node.connect() as peer:
            for _ in range(2):
                await peer.ask(produce("t", *[batch_of(b"x")] * MANY), 9)
            partitions = late(node, lambda number: number % 100 == 0)
            response = await peer.ask(fetch(*[0] * MANY, max_wait=20_000), VERSION)
            assert all(len(values(response, number)) == 2 for number in range(MANY))
            assert (partitions.read_count, partitions.kept_count) == (MANY // 100, 0)
            partitions.hold()
            response = await peer.ask(fetch(*[0] * MANY, max_wait=300), VERSION)
            assert codes(response) == [0] * MANY
            assert [number for number in range(MANY) if not values(response, number)] == list(
                range(0, MANY, 100))
            assert partitions.kept_count == 0
            peer.send(fetch(*[0] * MANY, max_wait=20_000), VERSION)
            await waiting(node, partitions)
            partitions.arrive()
            response = await peer.answer()
            assert all(values(response, number) for number in range(MANY))
            peer.send(fetch(*[0] * MANY, max_wait=20_000), VERSION)
            await waiting(node, partitions)
        await nothing_waits(node, partitions)


@looped
async def test_a_large_fetch_at_the_end_waits_for_bytes_of_new_records(tmp_path: Path) -> None:
    """D5: a commit wakes it, its bytes have to be fetched, and one response brings them.

    So it is for records that another node has written, of hundreds of partitions as of one.
    """
    async with NodeHere(tmp_path) as node, node.connect() as peer, node.connect() as other:
        await node.create("t", MANY)
        partitions = late(node, lambda number: number % 100 == 0)
        await peer.ask(fetch(*[0] * MANY, max_wait=0), VERSION)
        partitions.hold()
        for offset, ends in enumerate(("arrive", "time", "stop")):
            max_wait = 1000 if ends == "time" else 20_000
            peer.send(fetch(offset, *[0] * (MANY - 1), max_wait=max_wait), VERSION)
            async with asyncio.timeout(20):
                while not node.node.stats.fetch_waiters:
                    await asyncio.sleep(0.001)
            await other.ask(produce("t", batch_of(b"x")), 9)
            await waiting(node, partitions)
            match ends:
                case "arrive":
                    partitions.arrive()
                case "stop":
                    for waiter in list(node.node.broker.partitions.waiting):
                        waiter.advanced(0)
            response = await peer.answer()
            assert codes(response) == [0] * MANY
            assert bool(values(response, 0)) is (ends == "arrive")
            assert partitions.kept_count == 0
