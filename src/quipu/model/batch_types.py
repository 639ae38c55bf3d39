"""The registry of batch types: one small integer per subsystem that writes batches to a log.

Every stored batch carries its type in one byte outside Kafka's checksum, so that the broker can
tell what belongs to clients from what a node wrote for itself, without decoding anything.

Invariants
    B1  0 is nobody's: it means that a writer forgot to set the type, and is refused everywhere
    B2  one integer, one owner: a second claim fails when the module is imported
    B3  only DATA is visible to Kafka clients and takes up client offsets; a type this version
        does not know is kept, replicated and hidden

To add a type, add a line below; nothing else needs to know.  Never reuse a number.
"""

from typing import Final, NamedTuple, NewType

BatchType = NewType("BatchType", int)

UNSET: Final = BatchType(0)


class TypeInfo(NamedTuple):
    """What the registry knows about one type."""

    number: BatchType
    name: str
    owner: str  # the room that writes it
    visible: bool  # do Kafka clients see it, and does it take up client offsets
    about: str


class UnsetBatchType(ValueError):
    """A batch without a type: a bug in whoever made it (B1)."""


_registry: dict[int, TypeInfo] = {}


def register(number: int, name: str, owner: str, about: str, *, visible: bool = False) -> BatchType:
    """Claim `number`; raises if it is taken (B2) or is not a byte other than 0 (B1)."""
    if not 1 <= number <= 255:
        raise ValueError(f"batch type {number} ({name}): must be between 1 and 255; 0 means unset")
    taken = _registry.get(number)
    if taken is not None:
        raise ValueError(f"batch type {number}: {owner} claims it for {name}, "
                         f"but {taken.owner} owns it as {taken.name}")
    batch_type = BatchType(number)
    _registry[number] = TypeInfo(batch_type, name, owner, visible, about)
    return batch_type


def find(number: int) -> TypeInfo | None:
    """The registered type, or None for one that this version does not know."""
    return _registry.get(number)


def describe(number: int) -> str:
    """A name to print for any byte."""
    if number == UNSET:
        return "unset(0)"
    info = _registry.get(number)
    return info.name if info is not None else f"unknown({number})"


def registered() -> tuple[TypeInfo, ...]:
    """Every known type, by number."""
    return tuple(_registry[number] for number in sorted(_registry))


def require_set(batch_type: int, log: str, offset: int) -> None:
    """Refuse type 0 (B1), naming the log and the offset where it would have been written."""
    if batch_type == UNSET:
        raise UnsetBatchType(f"{log}: batch at offset {offset} has type 0 (unset); "
                             "whoever wrote it must set its type: nothing was stored")


DATA: Final = register(1, "data", "broker", "records that Kafka clients produced", visible=True)
CONFIGURATION: Final = register(2, "configuration", "raft, chain", "who the replicas of a log are")
CONTROLLER: Final = register(3, "controller", "controller", "commands that change cluster metadata")
GROUP: Final = register(4, "group", "broker", "consumer groups: members, generations, offsets")
CHECKPOINT: Final = register(
    5, "checkpoint", "storage", "derived state of a log, first in every segment")
LOG_START: Final = register(6, "log_start", "storage", "the log start offset was moved forward")
SNAPSHOT: Final = register(7, "snapshot", "storage", "state that replaces the commands before it")
NODE: Final = register(8, "node", "storage", "what one node remembers of its own logs")
VOTE: Final = register(9, "vote", "raft", "the term a voter is in, and whom it voted for")
