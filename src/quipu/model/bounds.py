"""How large a number of another node may be, and how far ahead of this node's own.

Terms, epochs, indexes and offsets only ever grow, and what one node says of them the others keep.
So one that is too large cannot be taken back: it is refused before it is kept, and logged.  A bound
leaves room to grow for good; a jump is more than a node can miss while it is away, or its log says
what to do.  Each is used where the number comes in:

    TERM       raft/codec, raft/admission        terms of Raft
    INDEX      raft/codec, raft/admission        entries of the metadata log
    EPOCH      chain/codec, chain/replica        epochs of chains, in messages
               controller/plausible              epochs and versions, in records of the metadata
    OFFSET     chain/codec, chain/inbound        offsets of partitions
    PRODUCER   controller/plausible              producer ids
"""

from typing import Final

TERM_MAX: Final = 1 << 62
TERM_JUMP_MAX: Final = 1 << 20  # elections: one a second for twelve days
FIRST_TERM_MAX: Final = 1 << 40  # that a node with an empty log takes; it has none of its own

INDEX_MAX: Final = 1 << 62
INDEX_JUMP_MAX: Final = 1 << 40

EPOCH_MAX: Final = 1 << 30  # half of what Kafka's protocol can say
EPOCH_JUMP_MAX: Final = 1 << 24  # within one entry of the metadata log
EPOCH_AHEAD_MAX: Final = 1 << 10  # of a neighbour that has heard more than this node

OFFSET_MAX: Final = 1 << 62
OFFSET_JUMP_MAX: Final = 1 << 48

PRODUCER_ID_MAX: Final = 1 << 62
PRODUCER_ID_JUMP_MAX: Final = 1 << 40
