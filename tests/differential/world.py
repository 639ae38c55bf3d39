"""The small world that both brokers share: its topics, groups and producers, and how to draw them.

Both brokers come to the same state because they get the same requests in the same order.  What the
generators need of that state is here: which topics there are and their ids, producers and their
sequence numbers, groups.  Fixed topics are never deleted; volatile ones come and go.
"""

import random
import time
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from tests.differential.both import Both

T = TypeVar("T")

FIXED_TOPICS: Final[dict[str, tuple[int, dict[str, str]]]] = {
    "plain": (1, {}),
    "wide": (6, {}),
    "compacted": (2, {"cleanup.policy": "compact"}),
    "stamped": (1, {"message.timestamp.type": "LogAppendTime"}),
    "strict-times": (1, {"message.timestamp.before.max.ms": "3600000",
                         "message.timestamp.after.max.ms": "3600000"}),
    "small-batches": (1, {"max.message.bytes": "600"}),
    "dots.in.name": (2, {}),
}
WHOLE_TOPICS: Final = ("stamped", "dots.in.name")  # none of their records is ever deleted
VOLATILE_TOPICS: Final = tuple(f"volatile-{number}" for number in range(6))
AUTO_TOPICS: Final = ("auto-0", "auto-1", "auto-2")
ABSENT_TOPICS: Final = ("no-such-topic", "x" * 249)
BAD_TOPICS: Final = ("", ".", "..", "a b", "a/b", "y" * 250, "é", "dots_in.name", "a\nb")
INTERNAL_TOPIC: Final = "__consumer_offsets"
GROUPS: Final = tuple(f"group-{number}" for number in range(8))  # of scenes, and of tools
SIMPLE_GROUPS: Final = tuple(f"simple-{number}" for number in range(4))  # only ever without members
ABSENT_GROUPS: Final = ("no-such-group", "")
STRANGE_GROUPS: Final = ("gruppe é", "g" * 300, " ", ".")
ABSENT_ID: Final = UUID(int=0xABCDEF)
MEMBERS: Final = ("", "nobody", "m" * 300)


class TopicFacts(NamedTuple):
    """A topic that exists on both sides."""

    topic_id: Both
    partitions: int


class Producer:
    """An idempotent producer: its ids, and the next sequence number of each partition."""

    def __init__(self, producer_id: Both) -> None:
        self.producer_id = producer_id
        self.next: dict[tuple[str, int], int] = {}
        self.last: dict[tuple[str, int], int] = {}


class World:
    """What exists, and dice to draw from it."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.topics: dict[str, TopicFacts] = {}
        self.deleted_ids: list[Both] = []
        self.producers: list[Producer] = []
        self.first_epochs = Both(0, 0)
        self.now_ms = int(time.time() * 1000)

    # -- dice

    def chance(self, probability: float) -> bool:
        return self.dice.random() < probability

    def pick(self, *values: T) -> T:
        return self.dice.choice(values)

    def pick_of(self, values: Sequence[T]) -> T:
        return self.dice.choice(values)

    def mostly(self, usual: Sequence[T], odd: Sequence[T], *, odds: float = 0.2) -> T:
        return self.dice.choice(odd if odd and self.chance(odds) else usual)

    def several(self, most: int = 3) -> int:
        """How many elements an array has: mostly one, sometimes none."""
        return self.dice.choices((0, 1, 2, most), (6, 60, 24, 10))[0]

    # -- names and numbers

    def topic(self) -> str:
        """Any topic a reader or writer may name."""
        return self.mostly((*FIXED_TOPICS, *VOLATILE_TOPICS), (*ABSENT_TOPICS, *BAD_TOPICS),
                           odds=0.12)

    def volatile_topic(self) -> str:
        return self.mostly(VOLATILE_TOPICS, (*ABSENT_TOPICS[:1], *BAD_TOPICS),
                           odds=0.15)

    def topic_id(self) -> Both | UUID:
        known = [facts.topic_id for name, facts in self.topics.items() if name != INTERNAL_TOPIC]
        odd: list[Both | UUID] = [ABSENT_ID, *self.deleted_ids[-4:]]
        return self.mostly(known or odd, odd, odds=0.15)

    def partition(self) -> int:
        return self.mostly((0, 0, 0, 0, 1, 2), (-1, 3, 5, 99, 2**31 - 1), odds=0.1)

    def offset(self) -> int:
        return self.mostly(range(30), (-1, -2, 10**6, 2**63 - 1), odds=0.15)

    def timestamp(self) -> int:
        return self.mostly(
            (-1, -1, -2, -2, -3, -4, -5, -6, 0, 1_000, 5_000, self.now_ms, self.now_ms - 5_000),
            (-7, -100, 2**63 - 1, self.now_ms + 10**9), odds=0.1)

    def leader_epoch(self) -> Both | int:
        first = self.first_epochs
        usual: tuple[Both | int, ...] = (-1, -1, first)
        odd: tuple[Both | int, ...] = (Both(first[0] + 1, first[1] + 1), 2**31 - 1, -2)
        return self.mostly(usual, odd, odds=0.2)

    def group(self) -> str:
        return self.mostly((*GROUPS, *SIMPLE_GROUPS), (*ABSENT_GROUPS, *STRANGE_GROUPS), odds=0.15)

    def member_id(self) -> str:
        return self.pick(*MEMBERS)

    def timeout(self) -> int:
        return self.mostly((1_000, 30_000), (0, 1, -1), odds=0.15)
