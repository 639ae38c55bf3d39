"""A client that only wants to be served: it writes a record every few milliseconds, and measures.

Used around an attack: `with Bystander(node) as bystander: attack()`, then `bystander.verdict()`.
"""

import threading
import time
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
PRODUCE_VERSION = 9


def produce_request(topic: str, value: bytes) -> ProduceRequest:
    """One record for partition 0."""
    batch = encode_batch([Record(None, value, (), int(time.time() * 1000))])
    part = PartitionProduceData(index=0, records=memoryview(batch))
    return ProduceRequest(acks=-1, timeout=10_000,
                          topic_data=[TopicProduceData(name=topic, partition_data=[part])])


class Bystander:
    """The client, on a thread of its own."""

    def __init__(self, node: RunningNode) -> None:
        self._node = node
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._failure: BaseException | None = None
        self.seconds: list[float] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopped.set()
        self._thread.join()

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
                self._ask(connection)  # and once after the attack
        except BaseException as failure:  # noqa: BLE001 told by `verdict`, in the test's thread
            self._failure = failure

    def _ask(self, connection: RawConnection) -> None:
        started = time.monotonic()
        response = connection.ask(produce_request(TOPIC, b"still here"), PRODUCE_VERSION)
        self.seconds.append(time.monotonic() - started)
        assert isinstance(response, ProduceResponse)
        code = response.responses[0].partition_responses[0].error_code
        assert code == 0, f"error code {code}"
