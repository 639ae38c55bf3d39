"""How far a partition is committed, when it must not be said too low.

The tail of a chain is the first to know that a record is committed, and gives it to consumers; the
head hears of it later.  A head that answered by what it has heard would tell a client less than
that client has read already.  But nobody can have been given more than the head's log holds.  So
whoever is asked where the log ends looks at the end of its own log, waits until all of that is
committed, and answers then; if that takes too long, OFFSET_NOT_AVAILABLE, which clients retry.

Invariants
    E1  an end that is answered is not below anything that any node has given, or any leader has
        answered, before the question came
    E2  a question is asked of a leader whose lease lasts, and answered by one
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from quipu.broker.partition import OffsetNotAvailable, Partition
from quipu.model.errors import Code, QuipuError
from quipu.model.ids import LogOffset

WAIT_MS: Final = 1000  # for other nodes; other requests of the connection wait behind it
VERSION_OFFSET_NOT_AVAILABLE: Final = 5  # of ListOffsets: older clients do not know the code

Marks = dict[Partition, LogOffset]  # what must be committed before an end is told


async def settle(partitions: Iterable[Partition]) -> Marks:
    """Wait until what these partitions hold now is committed, for a while; see `check_settled`."""
    marks = {partition: partition.log.log_end for partition in partitions}
    waiting = [partition.committed(mark, timeout_ms=WAIT_MS)
               for partition, mark in marks.items() if partition.committed_log < mark]
    if waiting:
        with suppress(TimeoutError):
            async with asyncio.timeout(WAIT_MS / 1000):
                await asyncio.gather(*waiting, return_exceptions=True)
    return marks


def check_settled(partition: Partition, marks: Marks) -> None:
    """Raise if it is not known to be committed what was there when `settle` was called (E1)."""
    if partition.committed_log < marks.get(partition, partition.log.log_end):
        raise OffsetNotAvailable(
            f"{partition.topic_partition}: the other nodes have not acknowledged everything yet: "
            "ask again")


def code_for(error: QuipuError, version: int) -> Code:
    """The code of an error in an answer to ListOffsets of `version`."""
    if error.code is Code.OFFSET_NOT_AVAILABLE and version < VERSION_OFFSET_NOT_AVAILABLE:
        return Code.LEADER_NOT_AVAILABLE
    return error.code
