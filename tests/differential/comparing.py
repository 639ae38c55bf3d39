"""Two responses to the same request, compared field by field.

A field is compared exactly, unless a rule below says in what it may differ: ids are twins, times
are times, texts are for people.  Arrays are compared as sets of elements by their keys, since Kafka
promises no order; an element that comes twice must come twice on both sides.

    path      topics[].partitions[].error_code     which field it is, without indexes
    kafka     NONE                                 its value there, as a class: see `_class_of`
    quipu     NOT_LEADER_OR_FOLLOWER               and here

Not here: which differences are explained (explained.py).
"""

import time
from collections import defaultdict
from collections.abc import Iterator
from enum import Enum
from typing import Any, Final, NamedTuple

from quipu.model.errors import Code
from quipu.model.ids import ZERO_UUID
from quipu.wire.layout import FieldSlot, layout
from quipu.wire.schema import Message, Struct
from tests.differential.both import Both, Twins
from tests.differential.connections import NoResponse, Outcome
from tests.differential.fetched import records_difference

DAY_MS: Final = 86_400_000


class Rule(Enum):
    """In what the values of a field may differ."""

    FREE = "not compared"
    EPOCH = "relative to the broker's first leader epoch"
    TIME = "both are times of this run, or equal"
    SIZE = "both are 0, or both are not"
    SIGN = "both are negative, or both are not"
    ID = "the same thing under two names; none on one side is none on the other"


# By the name of the field, or of its struct and the field.
RULES: Final[dict[str, Rule]] = {
    "throttle_time": Rule.FREE,  # neither has quotas
    "error_message": Rule.FREE, "batch_index_error_message": Rule.FREE,  # texts for people
    "documentation": Rule.FREE,
    "host": Rule.FREE, "port": Rule.FREE, "client_host": Rule.FREE,
    "log_dir": Rule.FREE,
    "leader_epoch": Rule.EPOCH, "current_leader_epoch": Rule.EPOCH, "epoch": Rule.EPOCH,
    "EpochEndOffset.leader_epoch": Rule.EPOCH,
    "QuorumPartitionData.leader_epoch": Rule.SIGN,  # of the metadata log, which elects by itself
    "QuorumPartitionData.high_watermark": Rule.SIGN, "log_end_offset": Rule.SIGN,
    "last_fetch_timestamp": Rule.SIGN, "last_caught_up_timestamp": Rule.SIGN,
    "finalized_features_epoch": Rule.SIGN,
    "timestamp": Rule.TIME, "log_append_time": Rule.TIME, "last_timestamp": Rule.TIME,
    "partition_size": Rule.SIZE, "total_bytes": Rule.SIZE, "usable_bytes": Rule.SIZE,
    "topic_id": Rule.ID, "producer_id": Rule.ID, "member_id": Rule.ID, "cluster_id": Rule.ID,
    "session_id": Rule.ID, "client_instance_id": Rule.ID, "subscription_id": Rule.ID,
    "replica_directory_id": Rule.ID, "JoinGroupResponse.leader": Rule.ID,
    "ListedTransaction.producer_id": Rule.ID,
}
ID_KINDS: Final = {"leader": "member_id"}  # fields with ids of another field's kind
_NONE_IS_ZERO: Final = frozenset({"session_id", "subscription_id"})
_KEYS: Final = (
    "name", "topic", "topic_name", "topic_id", "partition_index", "partition", "index",
    "partition_id", "group_id", "key", "api_key", "node_id", "broker_id", "replica_id",
    "resource_type", "resource_name", "member_id", "group_instance_id", "producer_id",
    "batch_index", "transactional_id", "user", "entity_type")
# Arrays whose elements are told apart in a path: settings, by their names.
_NAMED: Final = frozenset({
    "DescribeConfigsResourceResult", "CreatableTopicConfigs", "SupportedFeatureKey",
    "FinalizedFeatureKey", "ApiVersion", "DescribeConfigsSynonym"})
_NULL_IS_EMPTY: Final = frozenset({"aborted_transactions"})  # clients see no difference
_PIECES: Final = frozenset({
    "FetchableTopicResponse", "OffsetForLeaderTopicResult", "ListOffsetsTopicResponse",
    "OffsetCommitResponseTopic", "OffsetDeleteResponseTopic"})
# Kafka's topics of features that are not served here: left out of every list of topics.
FOREIGN_TOPICS: Final = frozenset({"__transaction_state", "__share_group_state"})


class Difference(NamedTuple):
    """What two responses differ in, without the values that change from run to run."""

    path: str
    kafka: str
    quipu: str


class _How(NamedTuple):
    """How the responses of one request are compared."""

    version: int
    limited: bool  # a limit of bytes may end the records early


class Comparison:
    """Compares pairs of responses; remembers which ids are twins."""

    def __init__(self) -> None:
        self.twins = Twins()
        self.first_epochs = Both(0, 0)
        self._now_ms = int(time.time() * 1000)

    def differences(
        self, version: int, kafka: Outcome, quipu: Outcome, *, limited: bool = False
    ) -> list[Difference]:
        """What two outcomes differ in.  `limited`: a limit of bytes may end the records early."""
        if isinstance(kafka, NoResponse) or isinstance(quipu, NoResponse):
            left, right = _outcome_class(kafka), _outcome_class(quipu)
            return [Difference("", left, right)] if left != right else []
        return list(dict.fromkeys(self._structs(kafka, quipu, "", _How(version, limited))))

    def _structs(
        self, kafka: Struct, quipu: Struct, path: str, how: "_How"
    ) -> Iterator[Difference]:
        shape = layout(type(kafka), how.version)
        for slot in (*shape.plain, *shape.tagged):
            ours, theirs = getattr(quipu, slot.name), getattr(kafka, slot.name)
            own = f"{path}.{slot.name}" if path else slot.name
            if slot.is_array:
                yield from self._arrays(slot, theirs, ours, own, how)
            elif slot.is_struct:
                if theirs is None or ours is None:
                    if theirs is not ours:
                        yield Difference(own, _class_of(slot, theirs), _class_of(slot, ours))
                else:
                    yield from self._structs(theirs, ours, own, how)
            elif slot.kind.name == "records":
                found = records_difference(theirs, ours, self.first_epochs, limited=how.limited)
                if found is not None:
                    yield Difference(own, *found)
            elif not self._are_equal(type(kafka).__name__, slot.name, theirs, ours):
                yield Difference(own, *_classes(slot, theirs, ours))
        if kafka.unknown_tags != quipu.unknown_tags:
            yield Difference(f"{path}.tags", _tags(kafka), _tags(quipu))

    def _arrays(
        self, slot: FieldSlot, kafka: Any, quipu: Any, path: str, how: "_How"
    ) -> Iterator[Difference]:
        own = f"{path}[]"
        if slot.name in _NULL_IS_EMPTY:
            kafka, quipu = kafka or [], quipu or []
        if kafka is None or quipu is None:
            if kafka is not quipu:
                yield Difference(path, _class_of(slot, kafka), _class_of(slot, quipu))
            return
        if not slot.is_struct:
            if slot.kind.name == "string" or path.endswith(("nodes", "replicas")):
                kafka, quipu = sorted(kafka), sorted(quipu)
            if kafka != quipu:
                yield Difference(own, f"{len(kafka)} elements", f"{len(quipu)} elements"
                                 if len(kafka) != len(quipu) else "other elements")
            return
        kafka = [each for each in kafka if getattr(each, "name", None) not in FOREIGN_TOPICS]
        pairs = self._aligned(_merged(kafka), _merged(quipu))
        for theirs, ours in pairs:
            shown = own
            if slot.kind.__name__ in _NAMED:
                key = getattr(theirs or ours, "name", None) or getattr(
                    theirs or ours, "api_key", "")
                shown = f"{path}[{key}]"
            if theirs is None or ours is None:
                yield Difference(shown, _presence(theirs), _presence(ours))
            else:
                yield from self._structs(theirs, ours, shown, how)

    def _aligned(self, kafka: list[Any], quipu: list[Any]) -> list[tuple[Any, Any]]:
        """Elements that belong together; None where one side has none."""
        if len(kafka) == len(quipu) == 1:
            return [(kafka[0], quipu[0])]
        waiting: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
        for each in quipu:
            waiting[self._key(each, of_kafka=False)].append(each)
        pairs: list[tuple[Any, Any]] = []
        alone = []
        for each in kafka:
            found = waiting.get(self._key(each, of_kafka=True))
            if found:
                pairs.append((each, found.pop(0)))
            else:
                alone.append(each)
        left = [each for rest in waiting.values() for each in rest]
        if len(alone) == len(left) and alone and self._has_new_ids(alone):
            return pairs + list(zip(alone, left, strict=True))
        return pairs + [(each, None) for each in alone] + [(None, each) for each in left]

    def _has_new_ids(self, elements: list[Any]) -> bool:
        return any(RULES.get(name) is Rule.ID for name in type(elements[0]).FIELDS
                   if name in _KEYS and name != "topic_id")

    def _key(self, element: Any, *, of_kafka: bool) -> tuple[Any, ...]:
        key = []
        named = bool(getattr(element, "name", None) or getattr(element, "topic", None))
        for name in _KEYS:
            if name in type(element).FIELDS and not (named and name == "topic_id"):
                value = getattr(element, name)
                if of_kafka and RULES.get(name) is Rule.ID and not is_none(name, value):
                    value = self.twins.of_kafka(ID_KINDS.get(name, name), value)
                key.append(value)
        if "entity" in type(element).FIELDS:  # of a quota: what it is for
            key.append(frozenset((each.entity_type, each.entity_name) for each in element.entity))
        return tuple(key)

    def _are_equal(self, struct: str, field: str, kafka: Any, quipu: Any) -> bool:
        rule = RULES.get(f"{struct}.{field}", RULES.get(field))
        if rule is None:
            return bool(kafka == quipu)
        match rule:
            case Rule.FREE:
                return True
            case Rule.EPOCH:
                return _relative(kafka, self.first_epochs.kafka) == _relative(
                    quipu, self.first_epochs.quipu)
            case Rule.TIME:
                return bool(kafka == quipu) or (self._is_now(kafka) and self._is_now(quipu))
            case Rule.SIZE:
                return bool((kafka == 0) == (quipu == 0))
            case Rule.SIGN:
                return bool((kafka < 0) == (quipu < 0))
            case Rule.ID:
                if is_none(field, kafka) or is_none(field, quipu):
                    return bool(kafka == quipu)
                return self.twins.are_same(ID_KINDS.get(field, field), kafka, quipu)

    def _is_now(self, value: int) -> bool:
        return abs(value - self._now_ms) < DAY_MS


def _merged(topics: list[Any]) -> list[Any]:
    """Topics with all their partitions: Kafka returns some in several pieces."""
    if not topics or type(topics[0]).__name__ not in _PIECES:
        return topics
    whole: dict[Any, Any] = {}
    for topic in topics:
        key = (getattr(topic, "topic", None) or getattr(topic, "name", None),
               getattr(topic, "topic_id", None))
        if key in whole:
            whole[key].partitions.extend(topic.partitions)
        else:
            values = {name: getattr(topic, name) for name in type(topic).FIELDS}
            whole[key] = type(topic)(**{**values, "partitions": list(topic.partitions)})
    return list(whole.values())


def is_none(field: str, value: Any) -> bool:
    """Whether an id is the one that stands for none."""
    return value in (None, "", -1, ZERO_UUID) or (value == 0 and field in _NONE_IS_ZERO)


def _relative(epoch: int, first: int) -> int:
    return epoch - first if epoch >= first else min(epoch, -1)


def _outcome_class(outcome: Outcome) -> str:
    return outcome.why if isinstance(outcome, NoResponse) else "a response"


def _presence(element: Any) -> str:
    if element is None:
        return "absent"
    code = getattr(element, "error_code", None)
    return "present" if not code else f"present, {_code_name(code)}"


def _tags(struct: Struct) -> str:
    return ",".join(str(tag) for tag, _ in struct.unknown_tags) or "none"


def _classes(slot: FieldSlot, kafka: Any, quipu: Any) -> tuple[str, str]:
    left, right = _class_of(slot, kafka), _class_of(slot, quipu)
    return left, right if left != right else f"another {right}"


def _class_of(slot: FieldSlot, value: Any) -> str:
    """A value as a class: error codes by name, numbers as -1, 0 or n, short words as they are."""
    if value is None:
        return "null"
    if slot.is_array or slot.is_struct:
        return "not null"
    if slot.name.endswith("error_code"):
        return _code_name(value)
    match slot.kind.name:
        case "bool":
            return str(value).lower()
        case "string":
            return repr(value) if len(value) <= 30 else "a text"
        case "bytes":
            return "bytes" if value else "no bytes"
        case "uuid":
            return "none" if value == ZERO_UUID else "an id"
    is_word = slot.kind.name in ("int8", "int16") or value in _BOUNDS
    return str(value) if is_word else "n" if value > 0 else "-n"


_BOUNDS: Final = frozenset({-2, -1, 0, -(2**31), 2**31 - 1, 2**63 - 1})


def _code_name(code: int) -> str:
    try:
        return Code(code).name
    except ValueError:
        return f"error {code}"


def error_codes(response: Message) -> Iterator[str]:
    """The names of all error codes in a response."""
    yield from _error_codes(response)


def _error_codes(struct: Struct) -> Iterator[str]:
    for name, field in type(struct).FIELDS.items():
        value = getattr(struct, name)
        if name.endswith("error_code"):
            yield _code_name(value)
        elif field.is_struct and value is not None:
            for each in value if isinstance(value, list) else [value]:
                yield from _error_codes(each)
