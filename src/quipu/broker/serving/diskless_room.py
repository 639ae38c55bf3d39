"""Requests to diskless topics wait while too many bytes of such batches are on their way.

Invariants
    broker.serving.D1  no batch is given to a diskless topic while more than diskless.buffer.bytes
                       are on their way; its request and later ones of the connection wait, so that
                       the client is slowed down, and gets no error
"""

from collections.abc import Callable, Iterable

from quipu.broker.serving.context import Broker
from quipu.broker.serving.record_checks import reserve
from quipu.broker.serving.reply import Reply
from quipu.wire.fast import Part


def must_wait(broker: Broker, parts: Iterable[Part]) -> bool:
    """Whether a request must wait until batches of diskless topics are written."""
    if broker.diskless is None or not broker.diskless.is_full:
        return False
    find = broker.partitions.find_for_wire
    found = (find(topic, index) for topic, index, _, _ in parts)
    return any(partition is not None and partition.is_diskless for partition in found)


async def room(broker: Broker, parts: Iterable[Part]) -> None:
    """Return when the batches of a request may be given to diskless topics."""
    if must_wait(broker, parts):  # broker.serving.D1
        assert broker.diskless is not None
        await broker.diskless.room()


def carry_out_when_room(
    broker: Broker, reply: Reply, frame: memoryview, *, acks: int,
    carry_out: Callable[[memoryview], None],
) -> None:
    """Call `carry_out` with the request's bytes once there is room; later requests wait."""
    size = len(frame)
    if not reserve(broker, size):
        carry_out(frame)  # the writer refuses what is too much
        return
    kept = reply.hold(frame)  # it is borrowed
    lost: list[bool] = []
    if acks != 0:  # with acks=0 a client may disconnect before its batches are appended
        reply.when_lost(lambda: lost.append(True))

    def go_on() -> None:
        try:
            if not lost:
                carry_out(kept)
        except Exception as error:
            reply.close(f"produce failed: {error!r}")
            raise
        finally:
            broker.stats.checking_bytes -= size
            reply.go_on()

    assert broker.diskless is not None
    broker.diskless.when_room(go_on)  # broker.serving.D1
