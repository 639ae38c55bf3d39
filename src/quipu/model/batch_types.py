"""The registry of batch types: one small integer per subsystem that writes batches to a log.

Every stored batch has its type in one byte outside Kafka's checksum, so that the broker can
distinguish clients' batches from a node's own without decoding them.

Invariants
    model.B1  0 is no type: it means that the writer did not set the type, and is refused
              everywhere
    model.B2  one number has one owner: registering a number twice raises at import
    model.B3  only DATA is visible to Kafka clients and takes up client offsets; batches of a type
              that this version does not know are stored and replicated, and hidden from clients

To add a type, add a line below; nothing else has to change.  Never reuse a number.
"""

from typing import Final, NamedTuple, NewType

BatchType = NewType("BatchType", int)

UNSET: Final = BatchType(0)


class TypeInfo(NamedTuple):
    """The registry's entry for one type."""

    number: BatchType
    name: str
    owner: str  # the room that writes it
    visible: bool  # whether Kafka clients see it and it takes up client offsets (model.B3)
    about: str


class UnsetBatchType(ValueError):
    """A batch without a type: a bug in the code that made it (model.B1)."""


_registry: dict[int, TypeInfo] = {}


def register(number: int, name: str, owner: str, about: str, *, visible: bool = False) -> BatchType:
    """Register `number`; raise if it is taken (model.B2) or not from 1 to 255 (model.B1)."""
    if not 1 <= number <= 255:
        raise ValueError(f"batch type {number} ({name}): must be between 1 and 255; 0 means unset")
    taken = _registry.get(number)
    if taken is not None:
        raise ValueError(f"batch type {number}: {owner} registers it as {name}, "
                         f"but {taken.owner} owns it as {taken.name}")
    batch_type = BatchType(number)
    _registry[number] = TypeInfo(batch_type, name, owner, visible, about)
    return batch_type


def find(number: int) -> TypeInfo | None:
    """The registered type, or None for one that this version does not know."""
    return _registry.get(number)


def describe(number: int) -> str:
    """A name to print for any type byte, known or not."""
    if number == UNSET:
        return "unset(0)"
    info = _registry.get(number)
    return info.name if info is not None else f"unknown({number})"


def registered() -> tuple[TypeInfo, ...]:
    """Every known type, by number."""
    return tuple(_registry[number] for number in sorted(_registry))


def require_set(batch_type: int, log: str, offset: int) -> None:
    """Refuse type 0 (model.B1), naming the log and the offset where it would have been written."""
    if batch_type == UNSET:
        raise UnsetBatchType(f"{log}: batch at offset {offset} has type 0 (unset); "
                             "its writer must set the type; nothing was stored")


DATA: Final = register(1, "data", "broker", "records that Kafka clients produced", visible=True)
CONFIGURATION: Final = register(2, "configuration", "raft, chain", "the replicas of a log")
CONTROLLER: Final = register(3, "controller", "controller", "commands that change cluster metadata")
GROUP: Final = register(4, "group", "broker", "consumer groups: members, generations, offsets")
CHECKPOINT: Final = register(
    5, "checkpoint", "storage", "derived state of a log, first in every segment")
LOG_START: Final = register(6, "log_start", "storage", "the log start offset was moved forward")
SNAPSHOT: Final = register(7, "snapshot", "storage", "state that replaces the commands before it")
NODE: Final = register(8, "node", "storage", "what one node remembers of its own logs")
TIERED: Final = register(
    10, "tiered", "storage", "up to which offset a remote tier has a copy of the log")
VOTE: Final = register(9, "vote", "raft", "the term a voter is in, and whom it voted for")
REMOTE_METADATA: Final = register(
    11, "remote_metadata", "broker", "metadata of segments in a remote tier: keys and values")
FILLER: Final = register(
    12, "filler", "storage", "covers the offsets of internal batches that compaction removed")
