"""What a reader lacks of a log: of the order of its records, and of their bytes."""

import asyncio

from quipu.diskless.reading.coordinates import LAG_SECONDS_MAX, LogKnowledge
from quipu.diskless.reading.reader import ReaderLags
from quipu.diskless.values import LogBounds, LogKey
from quipu.diskless.writing.limits import WriterLimits
from quipu.model.ids import Offset
from tests.diskless.nodes import LOG, TOPIC, memory_world
from tests.looped import timeless

SOON = WriterLimits(flush_interval_ms=10)


@timeless
async def test_a_node_that_hears_of_commits_is_not_behind() -> None:
    """D27: it knows of the records of others at once, and lacks them until it reads them."""
    world = memory_world()
    writer, other = await world.node(1, limits=SOON), await world.node(2)
    await writer.append("a")
    assert writer.reader.lags(LOG) == ReaderLags(known=0, cached=0)
    assert other.reader.lags(LOG) is None  # nobody asked it for this log
    assert await other.values() == ["a"]
    assert other.reader.lags(LOG) == (0, 0)
    for value in ("b", "c"):
        await writer.append(value)
    await asyncio.sleep(0)
    other.plane.calls.clear()
    assert other.reader.lags(LOG) == (0, 2)
    assert not other.plane.calls  # a scrape asks nobody
    assert await other.values() == ["a", "b", "c"]
    assert other.reader.lags(LOG) == (0, 0)
    await writer.close()
    await other.close()


@timeless
async def test_a_node_that_does_not_hear_of_commits_is_behind_until_it_does() -> None:
    """D27: how far, is found out by asking; notifications that come again end it."""
    world = memory_world()
    writer, other = await world.node(1, limits=SOON), await world.node(2)
    await writer.append("a")
    assert await other.values() == ["a"]
    assert other.reader._unwatch is not None
    other.reader._unwatch()  # as if the connection were lost
    for value in ("b", "c", "d"):
        await writer.append(value)
    await other.reader.refresh([LOG])
    assert other.reader.lags(LOG) == (3, 3)
    await other.reader.refresh([LOG])
    assert other.reader.lags(LOG) == (0, 3)  # nothing more came in between
    await writer.append("e")
    await other.reader.refresh([LOG])
    assert other.reader.lags(LOG) == (1, 4)
    other.reader._noticed(LOG, Offset(2))  # one that was under way, and is old
    assert other.reader.lags(LOG) == (1, 4)
    other.reader._noticed(LOG, Offset(6))  # the connection is back
    assert other.reader.lags(LOG) == (0, 5)
    await writer.close()
    await other.close()


@timeless
async def test_deleted_records_are_not_lacking() -> None:
    """D27: what is below the log start counts for nothing."""
    world = memory_world()
    writer, other = await world.node(1, limits=SOON), await world.node(2)
    for value in ("a", "b", "c"):
        await writer.append(value)
    await other.reader.refresh([LOG])
    assert other.reader.lags(LOG) == (0, 3)
    bounds = await writer.plane.delete_records(LOG, Offset(3), 0)
    assert bounds is not None
    other.reader.learn_bounds(LOG, bounds)
    assert other.reader.lags(LOG) == (0, 0)
    assert other.reader.lags(LogKey(TOPIC, 99)) is None
    await writer.close()
    await other.close()


def test_a_lag_that_was_found_long_ago_is_history() -> None:
    """D27: a log that nobody asks about any more is not said to be behind for ever."""
    known = LogKnowledge(LogBounds(Offset(0), Offset(0), Offset(5), 0), 0.0)
    known.note_answer(Offset(9), 10.0)
    assert known.lag(10.0 + LAG_SECONDS_MAX - 1) == 4
    assert known.lag(10.0 + LAG_SECONDS_MAX) == 0
