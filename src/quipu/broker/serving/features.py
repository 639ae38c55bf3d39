"""The features of the cluster, with their levels, in Kafka's terms (KIP-584).

This version supports one level of each feature, which is therefore the finalized one: tools show
it, and clients may rely on what it means.  A feature is here only if its APIs are served in full.

    metadata.version    what the APIs mean: those of Kafka 4.2
    kraft.version       voters of the metadata quorum can be added and removed
    group.version       groups of the consumer protocol (KIP-848)

Not here: transaction.version, share.version and streams.version.  Without a level of them clients
know that there are no transactions, share groups and streams groups.
"""

from functools import cache
from typing import Final, NamedTuple

from quipu.broker import handlers

EPOCH: Final = 0  # of the finalized levels: it would grow with each change, and there is none


class _Feature(NamedTuple):
    name: str
    level: int
    api_keys: tuple[int, ...]  # the APIs that it is about


_FEATURES: Final = (
    _Feature("metadata.version", 29, (18,)),  # Kafka calls it 4.2-IV1
    _Feature("kraft.version", 1, (80, 81)),
    _Feature("group.version", 1, (68, 69)),
)


@cache
def features() -> dict[str, int]:
    """The level of each feature, by name."""
    return {feature.name: feature.level for feature in _FEATURES
            if set(feature.api_keys) <= handlers.SUPPORTED.keys()}
