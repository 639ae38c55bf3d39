"""Producer ids: their numbers are handed out in blocks, so that giving one seldom needs a write.

A block is reserved durably before its first number is used.  A broker that stops loses the rest of
its block: numbers have gaps, and are never given twice.

A producer id has its number in the upper bits and random ones below.  A client does not prove that
a producer id is its own: a batch with a higher epoch takes the id over.  So ids must not be found
by counting.  A client that may read a topic sees the ids of its producers.
"""

from typing import Final

from quipu.controller.decision import Decision
from quipu.controller.records import ProducerIdsReserved
from quipu.controller.state import ClusterState
from quipu.model.ids import NodeId, ProducerId

BLOCK_SIZE: Final = 1000
CHANCE_SIZE: Final = 3  # bytes of an id that are chance
NUMBER_MAX: Final = 1 << (63 - 8 * CHANCE_SIZE)  # ten thousand a second last for a year and a half


def reserve(state: ClusterState, node_id: NodeId) -> Decision[range]:
    """The next block of numbers, for `node_id` alone."""
    start = state.next_producer_id
    end = ProducerId(start + BLOCK_SIZE)
    assert end <= NUMBER_MAX, "producer ids are used up"
    assert start < end, (start, end)
    record = ProducerIdsReserved(node_id=node_id, next_producer_id=end)
    return Decision([record], [range(start, end)])


def id_for_client(number: int, chance: bytes) -> ProducerId:
    """The id with this number; `chance` is of `CHANCE_SIZE` bytes.

    Ids from before there was chance in them are below the next number, so below all of these.
    """
    assert 0 <= number < NUMBER_MAX, number
    assert len(chance) == CHANCE_SIZE, chance
    return ProducerId(number << 8 * CHANCE_SIZE | int.from_bytes(chance))
