"""A client that only wants to be served: it writes a record every few milliseconds, and measures.

Used around an attack: `with Bystander(node) as bystander: attack()`, then `bystander.verdict()`.

`undisturbed` repeats an attack, and asserts that the bystander's latency stays low.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from quipu.wire.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from quipu.wire.record_batch import Record, encode_batch
from tests.harness.node import RunningNode
from tests.harness.raw import RawConnection

TOPIC = "bystander"
PAUSE_SECONDS = 0.005
SLOWEST_SECONDS_MAX = 5.0  # one answer; generous, for the attacker has the processor too
MEDIAN_SECONDS_MAX = 0.5  # far from the milliseconds it takes: test machines are busy
P99_SECONDS_MAX = 0.05
MEDIAN_ANSWERS_MIN = 20  # of fewer a median says nothing
ANSWERS_MIN = 150  # of which 99 of 100 are looked at; on a busy machine they take time
WAIT_SECONDS = 30.0
PRODUCE_VERSION = 9


def produce_request(topic: str, value: bytes) -> ProduceRequest:
    """One record for partition 0."""
    batch = encode_batch([Record(None, value, (), int(time.time() * 1000))])
    part = PartitionProduceData(index=0, records=memoryview(batch))
    return ProduceRequest(acks=-1, timeout=10_000,
                          topic_data=[TopicProduceData(name=topic, partition_data=[part])])


def anonymous_size(node: RunningNode) -> int:
    """Memory that is the node's own: resident, without files that it maps."""
    for line in Path(f"/proc/{node.pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no RssAnon")


def _loop_seconds(pid: int) -> float:
    """For how long the thread of a node's loop has run on a processor."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def _p99(seconds: list[float]) -> float:
    return sorted(seconds)[-1 - len(seconds) // 100]


class Bystander:
    """The client, on a thread of its own."""

    def __init__(self, node: RunningNode) -> None:
        self._node = node
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._failure: BaseException | None = None
        self.seconds: list[float] = []
        self.busy_seconds: list[float] = []  # for which the node's loop ran meanwhile
        self.anonymous_max = 0  # most memory that the node had, as far as was seen

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopped.set()
        self._thread.join()

    def p99(self) -> float:
        """CPU time of the node's loop within which 99 of 100 responses came, in seconds.  On a
        quiet machine that is the time that a client waits; on a busy one the node also waits for a
        CPU, which does not count.
        """
        assert self._failure is None, self._failure
        assert self.busy_seconds, "it was never served"
        return _p99(self.busy_seconds)

    def wall_p99(self) -> float:
        """The same by the clock, with the time for which the node waited for a processor."""
        assert self._failure is None, self._failure
        return _p99(self.seconds)

    def verdict(self) -> str:
        """Raise if it was not served well; describe how it was."""
        assert self._failure is None, self._failure
        assert self.seconds, "it was never served"
        ordered = sorted(self.seconds)
        median, slowest = ordered[len(ordered) // 2], ordered[-1]
        text = f"{len(ordered)} answers, median {median * 1e3:.1f} ms, max {slowest * 1e3:.0f} ms"
        assert slowest < SLOWEST_SECONDS_MAX, text
        assert median < MEDIAN_SECONDS_MAX, text
        return text

    def _run(self) -> None:
        try:
            with RawConnection(self._node.host, self._node.port) as connection:
                while not self._stopped.is_set():
                    self._ask(connection)
                    time.sleep(PAUSE_SECONDS)
                self._ask(connection)  # after the attack: once, and more if the attack was short
                while len(self.seconds) < MEDIAN_ANSWERS_MIN:
                    self._ask(connection)
        except BaseException as failure:  # noqa: BLE001 told by `verdict`, in the test's thread
            self._failure = failure

    def _ask(self, connection: RawConnection) -> None:
        started, busy = time.monotonic(), _loop_seconds(self._node.pid)
        response = connection.ask(produce_request(TOPIC, b"still here"), PRODUCE_VERSION)
        self.seconds.append(time.monotonic() - started)
        self.busy_seconds.append(_loop_seconds(self._node.pid) - busy)
        self.anonymous_max = max(self.anonymous_max, anonymous_size(self._node))
        assert isinstance(response, ProduceResponse)
        code = response.responses[0].partition_responses[0].error_code
        assert code == 0, f"error code {code}"


def undisturbed(
    node: RunningNode, attack: Callable[[], object], *, anonymous_max: int, seconds: float = 1.5,
    p99_max: float = P99_SECONDS_MAX,
) -> str:
    """Repeat `attack` for some seconds; assert that other clients are served, and print how fast.
    99 of 100 responses come before the node's loop has run for `p99_max`, and its memory stays
    below `anonymous_max` meanwhile.  If two of the first responses were slow, by chance or because
    another machine had the processor, it goes on: what every attack does shows in more of them.
    """
    with Bystander(node) as bystander:
        count = 0
        until = time.monotonic() + seconds
        while time.monotonic() < until or (time.monotonic() < until + WAIT_SECONDS and (
                len(bystander.seconds) < ANSWERS_MIN or bystander.p99() >= p99_max)):
            attack()
            count += 1
    text = (f"{count} attacks; p99 {bystander.p99() * 1e3:.1f} ms of the loop, "
            f"{bystander.wall_p99() * 1e3:.1f} ms by the clock; {bystander.verdict()}")
    text += f", {bystander.anonymous_max >> 20} MiB at most"
    assert bystander.p99() < p99_max, text
    assert bystander.anonymous_max < anonymous_max, text
    return text
