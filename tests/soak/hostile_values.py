"""Hostile values for every field of every request, made from the definitions of the messages.

    generator = Generator(random.Random(7), Known(...))
    request, version = generator.request()

Each request draws how hostile it is: most have few hostile values, so that they get deep into their
handlers, and some have nothing else.  The other values are names and numbers of things that exist:
topics, groups, and ids from responses (`Known.learn`: members, producers, fetch sessions).

Without authorization any client may delete topics, settings and groups.  So requests that change or
delete name only what belongs to the attacker (OWN_ONLY), and no id of an existing node; every other
request may also name what belongs to the bystander.
"""

import random
import time
from collections import deque
from typing import Any, Final
from uuid import UUID

from quipu.broker.handlers import SUPPORTED
from quipu.wire.layout import FieldSlot, layout
from quipu.wire.messages import OWN_KEY_FIRST, REQUESTS
from quipu.wire.messages.k01_fetch import FetchResponse
from quipu.wire.messages.k03_metadata import MetadataResponse
from quipu.wire.messages.k11_join_group import JoinGroupRequestProtocol, JoinGroupResponse
from quipu.wire.messages.k22_init_producer_id import InitProducerIdResponse
from quipu.wire.schema import Request, Response
from tests.harness.lies import CODECS, COUNT, bomb, lying_batches, sealed, true_batch

TOPICS: Final = tuple(f"attack-{number}" for number in range(24))
DISKLESS_TOPICS: Final = TOPICS[8:14]  # of those that are there at the beginning
GROUPS: Final = tuple(f"attackers-{number}" for number in range(12))
VICTIM_TOPIC: Final = "bystander"
VICTIM_GROUP: Final = "bystanders"
INTERNAL_TOPICS: Final = ("__consumer_offsets", "__cluster_metadata", "__cluster")

TOPIC_KEY_FIRST: Final = 10_003  # of Quipu's own APIs, those that name topics
PRODUCE, FETCH, OFFSET_COMMIT, JOIN_GROUP, HEARTBEAT, SYNC_GROUP = 0, 1, 8, 11, 12, 14
DELETE_RECORDS, INIT_PRODUCER_ID = 21, 22
CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS, LEAVE_GROUP = 19, 20, 37, 13
ALTER_CONFIGS: Final = frozenset({33, 44})
OWN_ONLY: Final = frozenset({
    OFFSET_COMMIT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP, CREATE_TOPICS, DELETE_TOPICS,
    DELETE_RECORDS, *ALTER_CONFIGS, CREATE_PARTITIONS, 42, 43, 45, 47})  # see above
NODE_KEYS: Final = frozenset({64, 80, 81})  # nodes and voters; these get numbers that none has
WEIGHTS: Final = {PRODUCE: 4, FETCH: 3, JOIN_GROUP: 2, OFFSET_COMMIT: 2, DELETE_TOPICS: 2}

_BITS: Final = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
_NAMES: Final = (
    "", ".", "..", ".x", "x" * 249, "x" * 250, "y" * 32_000, "z" * 32_767, "a/../b",
    "../../etc/passwd", "\0", "a\nb", "a b", "é" * 120, "\u202e\U0001f4a5", "-", "_", "a.b", "a_b",
    "%s%n", "null", *INTERNAL_TOPICS,
)
_CONFIG_VALUES: Final = (
    "", "0", "1", "-1", "-2", "100", "16384", "1048588", str(2**31 - 1), str(2**63 - 1), str(2**63),
    "9" * 4000, "1e9", "NaN", "true", "false", "delete", "compact", "compact,delete", "gzip", "all",
    "none", "LogAppendTime", "CreateTime", "é", "\0", " 1", "٣", "1_000",
)
_CONFIG_NAMES: Final = (
    "retention.ms", "retention.bytes", "segment.bytes", "cleanup.policy", "max.message.bytes",
    "flush.messages", "flush.ms", "message.timestamp.type", "message.timestamp.before.max.ms",
    "index.interval.bytes", "segment.index.bytes", "segment.ms", "message.records.check",
    "compression.type", "diskless.enable", "remote.storage.enable", "no.such.setting", "",
    "retention.ms\0", "x" * 3000,
)
_USUAL: Final[dict[str, tuple[int, ...]]] = {  # numbers by the names of their fields
    "session_timeout": (300, 1000, 2000), "rebalance_timeout": (300, 1000, 2000),
    "num_partitions": (-1, 1, 1, 2, 3, 4, 6), "count": (-1, 1, 1, 2, 3, 4, 6),
    "replication_factor": (-1, 1), "broker_ids": (1, -1), "replicas": (1, -1), "acks": (1, -1),
    "current_leader_epoch": (1, -1), "resource_type": (2, 2, 2, 4), "index": (0, 0, 0, 1, 2, 3),
}
_USUAL_PARTS: Final[dict[str, tuple[int, ...]]] = {  # and by parts of them, the first that fits
    "max_bytes": (1, 1000, 10_000, 100_000), "partition": (0, 0, 0, 1, 2, 3),
    "offset": (0, 0, 1, 2, 5, 10, 100, -1),
}
_STATES: Final = ("Stable", "Empty", "Dead", "PreparingRebalance", "classic", "consumer", "share")
_WORDS: Final[dict[str, tuple[str, ...]]] = {  # texts that are no names of topics or groups
    "protocol_type": ("consumer",), "protocol_name": ("range", "range", "roundrobin"),
    "states_filter": _STATES, "types_filter": _STATES, "host": ("127.0.0.1",),
    "client_software_name": ("librdkafka",), "client_software_version": ("2.0.0",),
    "reason": ("because",),
}
_ZERO: Final = UUID(int=0)
_ONES: Final = UUID(int=(1 << 128) - 1)
BOMB_SIZE: Final = 4 << 20  # of zeros, once it is decompressed
LEARNED_MAX: Final = 64  # of each kind


def whole_numbers(bits: int) -> tuple[int, ...]:
    """The ends of a signed number of `bits` and a sign, and what lies near them and near 0."""
    end = 1 << bits
    return (-end, -end + 1, *range(-6, 7), end // 2, end - 2, end - 1)


class Known:
    """What the attacker knows: names, and ids from responses."""

    def __init__(self, topic_ids: dict[str, UUID], cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self.topic_ids = dict(topic_ids)
        self.members: deque[tuple[str, str, int]] = deque(maxlen=LEARNED_MAX)
        self.producers: deque[list[int]] = deque(maxlen=LEARNED_MAX)  # id, epoch, next sequence
        self.sessions: deque[int] = deque(maxlen=LEARNED_MAX)

    def learn(self, request: Request, response: Response) -> None:
        """Remember the ids in a response."""
        if isinstance(response, JoinGroupResponse):
            group: Any = request
            if response.member_id and response.error_code in (0, 79):  # MEMBER_ID_REQUIRED
                self.members.append((group.group_id, response.member_id, response.generation_id))
        elif isinstance(response, InitProducerIdResponse):
            if response.error_code == 0:
                self.producers.append([response.producer_id, response.producer_epoch, 0])
        elif isinstance(response, FetchResponse):
            if response.session_id:
                self.sessions.append(response.session_id)
        elif isinstance(response, MetadataResponse):
            for topic in response.topics:
                if topic.name in TOPICS and topic.error_code == 0 and topic.topic_id != _ZERO:
                    self.topic_ids[topic.name] = topic.topic_id


class Generator:
    """Makes requests: any API, any version that is served, any values."""

    def __init__(self, chance: random.Random, known: Known) -> None:
        self._chance = chance
        self._known = known
        keys = sorted(SUPPORTED)
        self._keys = keys
        self._weights = [WEIGHTS.get(key, 1) for key in keys]
        self._batches = [bytes(batch) for codec in CODECS for batch in (
            true_batch(codec), true_batch(codec, 1), *lying_batches(codec).values())]
        self._bombs = [bomb(codec, BOMB_SIZE) for codec in CODECS if codec]
        self._batches += [
            bytes(sealed(b"", codec=codec, packed=packed, count=COUNT))
            for codec, packed in zip(CODECS[1:], self._bombs, strict=True)]
        self._hostility = 0.0  # how probable it is that a value of this request is hostile
        self._key = 0
        self._version = 0
        self._budget = 0  # elements that this request may still have
        self._may_wait = False

    def request(self, *, waits: bool) -> tuple[Request, int]:
        """A request and its version; only with `waits` it may be one whose response takes long."""
        chance = self._chance
        self._may_wait = waits
        key = chance.choices(self._keys, self._weights)[0]
        while not waits and key in (JOIN_GROUP, SYNC_GROUP):
            key = chance.choices(self._keys, self._weights)[0]
        if waits:
            key = chance.choice((FETCH, JOIN_GROUP, JOIN_GROUP, SYNC_GROUP, SYNC_GROUP, key))
        kind = REQUESTS[key]
        version = chance.choice(kind.VERSIONS)
        self._key, self._version = key, version
        self._hostility = chance.choices((0.0, 0.03, 0.15, 0.6, 1.0), (20, 35, 30, 10, 5))[0]
        self._budget = chance.choices((60, 600, 6_000, 11_000), (800, 180, 18, 2))[0]
        request = self._fill(kind, top=True)
        self._fit(request)
        return request, version

    # -- structs and arrays

    def _fill(self, struct: Any, *, top: bool = False) -> Any:
        made = struct()
        shape = layout(struct, self._version)
        for slot in (*shape.plain, *shape.tagged):
            if slot.is_array:
                value = self._array(struct, slot, top=top)
            elif slot.nullable and self._is_hostile(0.5):
                value = None
            elif slot.is_struct:
                value = self._fill(slot.kind)
            else:
                value = self._value(struct.__name__, slot)
            setattr(made, slot.name, value)
        return made

    def _array(self, struct: Any, slot: FieldSlot, *, top: bool) -> list[Any] | None:
        chance = self._chance
        if slot.nullable and chance.random() < 0.15:
            return None
        if slot.name in ("assignments", "replicas", "broker_ids", "configs") and (
                chance.random() < 0.6 and self._key != SYNC_GROUP):
            return None if slot.nullable else []
        count = chance.choice((0, 1, 1, 1, 1, 2, 3, 5)) if not self._is_hostile(0.3) else (
            chance.choice((0, 10, 40, 4_000, 12_000)))
        count = min(count, max(self._budget, 0))
        self._budget -= count
        if count and (count > 40 or chance.random() < 0.3):  # the same again and again
            few = [self._element(struct, slot) for _ in range(min(count, 1 + top))]
            return [few[index % len(few)] for index in range(count)]
        return [self._element(struct, slot) for _ in range(count)]

    def _element(self, struct: Any, slot: FieldSlot) -> Any:
        return self._fill(slot.kind) if slot.is_struct else self._value(struct.__name__, slot)

    # -- values

    def _is_hostile(self, share: float = 1.0) -> bool:
        return self._chance.random() < self._hostility * share

    def _value(self, struct: str, slot: FieldSlot) -> Any:
        kind = slot.kind.name
        if kind == "string":
            return self._text(struct, slot)
        if kind in _BITS:
            if self._is_hostile():
                return self._chance.choice(whole_numbers(_BITS[kind]))
            return self._number(slot)
        if kind == "uint16":
            return self._chance.choice((0, 1, 9092, 65535))
        if kind == "bool":
            return self._chance.random() < 0.5
        if kind == "uuid":
            return self._uuid()
        if kind == "records":
            return self._records()
        if kind == "bytes":
            few = (b"", b"\0", bytes(40), self._chance.randbytes(30), b"\xff" * 300,
                   self._chance.choice(self._batches))
            rare = (bytes(200_000), *self._bombs)
            is_rare = self._budget <= 60 and self._is_hostile(0.1)  # a frame must not be too large
            return self._chance.choice(rare if is_rare else few)
        if kind == "float64":
            return self._chance.choice((0.0, -1.0, float("inf"), float("nan")))
        raise AssertionError(f"no values for {kind}")

    def _text(self, struct: str, slot: FieldSlot) -> str:
        chance, name = self._chance, slot.name
        if name == "value":
            return chance.choice(_CONFIG_VALUES if self._is_hostile() else ("1048576", "100000"))
        if name == "configuration_keys" or ("Config" in struct and name == "name"):
            return chance.choice(_CONFIG_NAMES)
        if self._is_hostile():
            return chance.choice(_NAMES)
        if name == "cluster_id":
            return self._known.cluster_id
        if name in ("member_id", "group_instance_id"):
            known = [member for _, member, _ in self._known.members]
            return chance.choice([*known[-8:], "", "m"])
        if name in _WORDS:
            return chance.choice(_WORDS[name])
        if struct == "JoinGroupRequestProtocol":
            return chance.choice(_WORDS["protocol_name"])
        if OWN_KEY_FIRST <= self._key < TOPIC_KEY_FIRST:
            return chance.choice(("quipu", "quipu-0", "quipu-1", "a", "a-0"))
        if "group" in name or name in ("key", "coordinator_keys"):
            return self._own_or_theirs(GROUPS, VICTIM_GROUP)
        return self._own_or_theirs(TOPICS, VICTIM_TOPIC)

    def _own_or_theirs(self, own: tuple[str, ...], theirs: str) -> str:
        if self._key not in OWN_ONLY and self._chance.random() < 0.2:
            return theirs
        return self._chance.choice(own)

    def _number(self, slot: FieldSlot) -> int:
        chance, name = self._chance, slot.name
        if name == "timestamp":
            return chance.choice((*range(-6, 2), int(time.time() * 1000)))
        if name == "session_id":
            return chance.choice([0, 0, *list(self._known.sessions)[-8:]])
        if name in _USUAL:
            return chance.choice(_USUAL[name])
        if "timeout" in name or name == "max_wait":
            return chance.choice((0, 1, 50, 300, 1000)) if self._may_wait else 0
        for part, numbers in _USUAL_PARTS.items():
            if part in name:
                return chance.choice(numbers)
        return chance.choice((-1, 0, 1, 2, 3, slot.default if isinstance(slot.default, int) else 0))

    def _uuid(self) -> UUID:
        ids = [each for name, each in self._known.topic_ids.items()
               if name != VICTIM_TOPIC or self._key not in OWN_ONLY]
        if self._is_hostile() or not ids:
            return self._chance.choice((_ZERO, _ONES, UUID(int=1),
                                        UUID(bytes=self._chance.randbytes(16))))
        return self._chance.choice(ids)

    # -- records

    def _records(self) -> memoryview:
        chance = self._chance
        if not self._is_hostile():
            return memoryview(self._true_batch())
        draw = chance.random()
        if draw < 0.6:
            return memoryview(chance.choice(self._batches))
        if draw < 0.7:
            return memoryview(b"".join(chance.choices(self._batches, k=chance.choice((2, 3, 50)))))
        if draw < 0.8:
            return memoryview(chance.choice((b"", b"\0", bytes(61), bytes(100), b"\xff" * 70)))
        batch = bytearray(chance.choice(self._batches))
        if draw < 0.9:  # a lie in the header, or anywhere
            batch[chance.randrange(61 if chance.random() < 0.7 else len(batch))] ^= (
                1 << chance.randrange(8))
        else:
            del batch[chance.randrange(len(batch)):]
        return memoryview(batch)

    def _true_batch(self) -> bytearray:
        """Of nobody, or of a producer that exists, in order or nearly so."""
        chance, codec = self._chance, self._chance.choice(CODECS)
        if not self._known.producers or chance.random() < 0.4:
            return true_batch(codec, chance.choice((1, 4)))
        producer = chance.choice(self._known.producers)
        producer_id, epoch, sequence = producer
        odd = chance.random()
        if odd < 0.2:
            epoch = chance.choice((epoch + 1, epoch - 1, 0, -1, 32767, -32768))
        elif odd < 0.4:
            sequence = chance.choice((sequence - 4, sequence + 4, 0, -1, 2**31 - 1, 2**31 - 2))
        else:
            producer[2] += 4
        numbers = (producer_id, max(-32768, min(epoch, 32767)),
                   max(-(2**31), min(sequence, 2**31 - 1)))
        return true_batch(codec, 4, producer=numbers)

    # -- fields that belong together, and what nobody may harm

    def _fit(self, request: Any) -> None:
        chance, key = self._chance, self._key
        if key in NODE_KEYS:
            for name in ("broker_id", "voter_id"):
                if 0 <= getattr(request, name, -1) <= 9:
                    setattr(request, name, chance.choice((-1, 999, 2**31 - 1)))
        elif key in ALTER_CONFIGS:
            for resource in request.resources:
                if resource.resource_type != 2:  # a node's settings are everybody's
                    resource.resource_name = chance.choice(("999", "x", "é", "-1"))
        elif key in (OFFSET_COMMIT, HEARTBEAT, SYNC_GROUP, JOIN_GROUP):
            self._fit_member(request)
        elif key == INIT_PRODUCER_ID and chance.random() < 0.7:
            request.transactional_id = None
        elif key == PRODUCE:
            if chance.random() < 0.9:
                request.transactional_id = None
            if request.acks == 0 or chance.random() < 0.8:
                request.acks = chance.choice((-1, -1, -1, 1, 1, 0)) if self._may_wait else (
                    chance.choice((-1, 1)))
        elif key == FETCH and not self._may_wait:
            request.max_wait = min(request.max_wait, 0)

    def _fit_member(self, request: Any) -> None:
        """Name a member that exists, of the generation that it is in."""
        chance, key, members = self._chance, self._key, self._known.members
        if members and chance.random() < 0.6:
            group, member, generation = chance.choice(list(members)[-6:])
            request.group_id, request.member_id = group, member
            if not self._is_hostile():
                request.group_instance_id = None
            for name in ("generation_id", "generation_id_or_member_epoch"):
                if hasattr(request, name) and not self._is_hostile():
                    setattr(request, name, generation)
        if key == JOIN_GROUP and not self._is_hostile():
            request.group_instance_id = chance.choice((None, None, None, "i"))
            request.protocols = request.protocols[:3] or [JoinGroupRequestProtocol(name="range")]
        if key == SYNC_GROUP and not self._is_hostile():
            request.protocol_type, request.protocol_name = None, None
            for assignment in request.assignments:
                assignment.member_id = request.member_id


def count_elements(value: Any) -> int:
    """Elements of all arrays of a request together."""
    if isinstance(value, (list, tuple)):
        return len(value) + sum(map(count_elements, value))
    fields = getattr(type(value), "FIELDS", None)
    return 0 if fields is None else sum(count_elements(getattr(value, name)) for name in fields)
