"""Values that the two brokers call by different names: ids, epochs, sessions.

A request is built once for both brokers.  Where it needs an id that a broker has chosen, it holds
a `Both`; `for_side` makes the request that one broker gets.  What belongs together is learnt from
responses: ids that appear in the same place of two responses are the same thing (`Twins`).
"""

from collections.abc import Hashable
from typing import Any, NamedTuple

from quipu.wire.schema import Struct

KAFKA, QUIPU = 0, 1  # the sides, as indexes


class Both(NamedTuple):
    """One thing, as each of the brokers calls it."""

    kafka: Any
    quipu: Any


def for_side(value: Any, side: int) -> Any:
    """A request, or a part of one, as one broker gets it."""
    if isinstance(value, Both):
        return value[side]
    if isinstance(value, list):
        return [for_side(each, side) for each in value]
    if isinstance(value, Struct):
        made = type(value)
        return made(unknown_tags=value.unknown_tags, **{
            name: for_side(getattr(value, name), side) for name in made.FIELDS})
    return value


class Twins:
    """Which id of Kafka is which of Quipu's, by kind; first come, first paired."""

    def __init__(self) -> None:
        self._of_kafka: dict[tuple[str, Hashable], Hashable] = {}
        self._of_quipu: dict[tuple[str, Hashable], Hashable] = {}

    def are_same(self, kind: str, kafka: Hashable, quipu: Hashable) -> bool:
        """Whether two ids name the same thing; ids that were never seen become twins."""
        known, other = self._of_kafka.get((kind, kafka)), self._of_quipu.get((kind, quipu))
        if known is None and other is None:
            self._of_kafka[kind, kafka], self._of_quipu[kind, quipu] = quipu, kafka
            return True
        return known == quipu and other == kafka

    def of_kafka(self, kind: str, kafka: Hashable) -> Hashable:
        """Quipu's name for an id of Kafka; the id itself if it was never seen."""
        return self._of_kafka.get((kind, kafka), kafka)
