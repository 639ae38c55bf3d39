"""The simulated object store: each of its faults, and that a seed decides them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from quipu.runtime.objects.errors import ObjectNotFound, PreconditionFailed, StoreUnavailable
from quipu.runtime.objects.store import ObjectStore
from quipu.sim.twins.objects import STORE_HOST, TIMEOUT_SECONDS, StoreFaults
from quipu.sim.world import World
from tests.contract.object_store.stores import Idle


class Shop:
    """A world with one machine and the store."""

    def __init__(self, seed: int = 1) -> None:
        self.world = World(seed)
        self.machine = self.world.machine("n1", lambda _: Idle())
        self.machine.boot()

    def run(self, story: Callable[[ObjectStore], Awaitable[Any]]) -> Any:
        """The result of `story`, or its error."""
        outcome: list[Any] = []

        async def work() -> None:
            try:
                outcome.append(await story(self.machine.objects))
            except Exception as error:  # noqa: BLE001 it is handed on
                outcome.append(error)

        self.world.run_on(self.machine, work, "test")
        self.world.run_until(lambda: bool(outcome), 600, "done")
        if isinstance(outcome[0], Exception):
            raise outcome[0]
        return outcome[0]

    def faults(self, **faults: float) -> None:
        self.world.bucket.faults = StoreFaults(**faults)

    def took(self, story: Callable[[ObjectStore], Awaitable[Any]]) -> float:
        """Virtual seconds."""

        async def timed(store: ObjectStore) -> float:
            began = self.world.loop.now
            await story(store)
            return self.world.loop.now - began

        seconds: float = self.run(timed)
        return seconds


@pytest.fixture
def shop() -> Iterator[Shop]:
    shop = Shop()
    yield shop
    shop.world.end()


def put(store: ObjectStore) -> Awaitable[Any]:
    return store.put("a", [b"1"])


def test_a_request_takes_virtual_time(shop: Shop) -> None:
    """As much as the store says."""
    shop.faults(seconds_min=2.0, seconds_max=2.0)
    assert 2.0 < shop.took(put) < 2.1


def test_a_slow_store(shop: Shop) -> None:
    """Some requests take far longer."""
    shop.faults(slow=1.0, slow_seconds_max=5.0)
    times = [shop.took(put) for _ in range(20)]
    assert 2.5 < max(times) < 5.2
    assert min(times) < 2.5


def test_a_refusal_did_nothing(shop: Shop) -> None:
    """503: before anything is done; and then it goes well."""
    shop.faults(refuse=1.0)
    with pytest.raises(StoreUnavailable, match="503"):
        shop.run(put)
    shop.faults()
    with pytest.raises(ObjectNotFound):
        shop.run(lambda store: store.head("a"))


def test_an_answer_that_never_comes(shop: Shop) -> None:
    """sim.O1, sim.O2: the request was carried out, and its caller cannot know."""
    shop.faults(lose_answer=1.0)
    began = shop.world.loop.now
    with pytest.raises(StoreUnavailable, match="may have been done"):
        shop.run(lambda store: store.put("a", [b"1"], if_absent=True))
    assert shop.world.loop.now - began < TIMEOUT_SECONDS + 0.2
    shop.faults()
    with pytest.raises(PreconditionFailed):
        shop.run(lambda store: store.put("a", [b"2"], if_absent=True))
    assert shop.run(lambda store: store.get("a")) == b"1"


def test_a_store_that_cannot_be_reached(shop: Shop) -> None:
    """A cut of either direction; what is held up may be done after the caller gave up."""
    net = shop.world.net
    net.cut("n1", STORE_HOST)
    with pytest.raises(StoreUnavailable):
        shop.run(put)
    net.heal()
    shop.world.run_for(1)
    assert shop.run(lambda store: store.get("a")) == b"1"
    net.cut(STORE_HOST, "n1")
    with pytest.raises(StoreUnavailable):
        shop.run(lambda store: store.get("a"))


def test_what_was_asked_before_a_crash_may_be_done_after_it(shop: Shop) -> None:
    """sim.O1: the store does not know that its client is gone; it loses nothing."""
    shop.faults(seconds_min=1.0, seconds_max=1.0)

    async def ask() -> None:
        await shop.machine.objects.put("a", [b"1"])

    shop.world.run_on(shop.machine, ask, "put")
    shop.world.run_for(0.5)
    shop.machine.lose_power()
    shop.world.run_for(2)
    shop.machine.boot()
    assert shop.run(lambda store: store.get("a")) == b"1"


def history(seed: int) -> tuple[list[str], str]:
    """The responses that a client of a faulty store got, and the trace's digest."""
    shop = Shop(seed)
    shop.faults(slow=0.2, refuse=0.3, lose_answer=0.2)
    told: list[str] = []

    async def story(store: ObjectStore) -> None:
        for number in range(40):
            try:
                await store.put(f"k{number % 5}", [b"%d" % number])
                told.append("done")
            except StoreUnavailable as error:
                told.append(str(error))
            await asyncio.sleep(0.01)

    shop.run(story)
    shop.world.end()
    return told, shop.world.trace.digest


def test_the_seed_decides() -> None:
    """The same faults at the same times, and others with another seed."""
    assert history(1) == history(1)
    assert history(1) != history(2)
    told, _ = history(1)
    assert len(set(told)) > 3
