"""Limits on the terms, epochs, indexes and offsets that another node may send.

These numbers only ever grow, and a node stores those that it receives.  One that is far too large
could never be corrected: it is refused before it is stored, and logged.  `_MAX` is the largest
value, `_JUMP_MAX` the largest step above this node's own value, more than a node can miss while it
is down.  Each limit is checked where the number is received:

    TERM       raft/codec, raft/admission        terms of Raft
    INDEX      raft/codec, raft/admission        entries of the metadata log
    EPOCH      chain/codec, chain/replica        epochs of chains, in messages
               controller/record_bounds          epochs and versions, in records of the metadata
    OFFSET     chain/codec, chain/inbound        offsets of partitions
    PRODUCER   controller/record_bounds          producer ids
"""

from typing import Final

TERM_MAX: Final = 1 << 62
TERM_JUMP_MAX: Final = 1 << 20  # elections: one a second for twelve days
FIRST_TERM_MAX: Final = 1 << 40  # for a node with an empty log, which has no term of its own

INDEX_MAX: Final = 1 << 62
INDEX_JUMP_MAX: Final = 1 << 40

EPOCH_MAX: Final = 1 << 30  # half of the largest epoch in Kafka's protocol
EPOCH_JUMP_MAX: Final = 1 << 24  # within one entry of the metadata log
EPOCH_AHEAD_MAX: Final = 1 << 10  # of a neighbour in a chain whose metadata is newer

OFFSET_MAX: Final = 1 << 62
OFFSET_JUMP_MAX: Final = 1 << 48

PRODUCER_ID_MAX: Final = 1 << 62
PRODUCER_ID_JUMP_MAX: Final = 1 << 40
