"""The storage backend over the metadata topic: asks the leader of a key's partition, here or there.

Keys whose first two names are the same (a topic id and a partition) are in one partition of the
topic, so that everything about a user's partition can change in one atomic step.

Invariants
    broker.metadata_topic.B1  a request is sent again, to the leader as known then, only if nothing
                              was written; after a write whose response was lost, the caller gets
                              `OutcomeUnknown`
    broker.metadata_topic.B2  only nodes of the cluster are served

Not here: what a leader does with a request (shard.py), the metadata itself (remote/metadata).
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from quipu.broker.coordinators.shards import CoordinatorShards, CoordinatorTopic, OpenLog
from quipu.broker.metadata_topic.codec import (
    Call,
    MetadataRequest,
    NotMetadataLeader,
    decode_request,
    decode_response,
    encode_entries,
    encode_error,
    encode_request,
)
from quipu.broker.metadata_topic.shard import MetadataShard
from quipu.model.batch_types import REMOTE_METADATA
from quipu.model.errors import Code, ErrorKind, MalformedBytes, QuipuError, RequestError
from quipu.model.ids import NO_NODE, NodeId
from quipu.model.partition_log import PartitionLog
from quipu.model.topics import REMOTE_LOG_METADATA
from quipu.remote.metadata.errors import (
    BackendUnavailable,
    InvalidStorageRequest,
    MetadataStorageError,
    OutcomeUnknown,
)
from quipu.remote.metadata.storage.backend import (
    PAGE_MAX,
    CreateKey,
    ExpectValue,
    KeyValue,
    Operation,
    RemoveKey,
    UpdateKey,
    check_key,
    check_operations,
)
from quipu.runtime.peers.peer_net import PeerNet, PeerUnavailable

if TYPE_CHECKING:  # it holds this backend too
    from quipu.broker.serving.context import Broker

CALL_KIND: Final = 3  # of calls between nodes
PAUSE_SECONDS: Final = 0.05  # before a request is sent again
SCOPE_NAMES: Final = 2  # names at the front of a key that decide its partition


def scope_of(key: str) -> str:
    """The part of a key that decides which partition of the topic it is in."""
    check_key(key)
    names = key.split("/", SCOPE_NAMES)
    if len(names) < SCOPE_NAMES:
        raise InvalidStorageRequest(f"{key!r}: a key begins with a topic id and a partition")
    return "/".join(names[:SCOPE_NAMES])


class TopicBackend:
    """Metadata storage over `__remote_log_metadata`, and this node's share of serving it."""

    def __init__(
        self, broker: "Broker", net: PeerNet | None, *, partition_count: int,
        timeout_seconds: float, is_registered: Callable[[NodeId], bool],
        open_log: OpenLog | None = None,
    ) -> None:
        """`partition_count` is that of a new topic; `open_log` is for tests."""
        self._node_id = broker.node_id
        self._net = net
        self._timeout_seconds = timeout_seconds
        self._is_registered = is_registered
        self.shards: CoordinatorShards[MetadataShard] = CoordinatorShards(
            broker, CoordinatorTopic(REMOTE_LOG_METADATA, partition_count, REMOTE_METADATA),
            lambda name, log: MetadataShard(name, log, self._reload), open_log)
        if net is not None:
            net.serve(CALL_KIND, self._serve)

    # -- leadership of the topic's partitions

    def leading_began(self, partition: PartitionLog) -> None:
        """Load the entries of `partition`, if it is one of the topic's."""
        self.shards.leading_began(partition)

    def leading_ended(self, partition: PartitionLog) -> None:
        """Close the entries of `partition`: another node leads it, or will."""
        self.shards.leading_ended(partition)

    def _reload(self, shard: MetadataShard) -> None:
        self.shards.reload(shard)

    # -- the storage backend

    async def create(self, key: str, value: bytes) -> None:
        await self.execute([CreateKey(key, value)])

    async def update(self, key: str, value: bytes) -> None:
        await self.execute([UpdateKey(key, value)])

    async def get(self, key: str) -> bytes | None:
        return (await self.get_many([key])).get(key)

    async def get_like(self, key: str) -> list[KeyValue]:
        found: list[KeyValue] = []
        while page := await self.page(key, found[-1].key if found else None, PAGE_MAX):
            found += page
        return found

    async def remove_like(self, key: str, *, expected: Sequence[ExpectValue] = ()) -> None:
        while page := await self.page(key, None, PAGE_MAX):
            await self.execute([*expected, *(RemoveKey(each.key) for each in page)])

    async def execute(self, operations: Sequence[Operation]) -> None:
        keys = check_operations(operations)
        if keys:
            await self._ask(_one_scope(keys), MetadataRequest(Call.EXECUTE, operations))

    async def floor(self, parent: str, key: str) -> KeyValue | None:
        found = await self._ask(_one_scope([parent, key]),
                                MetadataRequest(Call.FLOOR, keys=[parent, key]))
        return found[0] if found else None

    async def page(self, parent: str, after: str | None, limit: int) -> list[KeyValue]:
        return await self._ask(scope_of(parent), MetadataRequest(
            Call.PAGE, keys=[parent, after or ""], limit=min(limit, PAGE_MAX)))

    async def get_many(self, keys: Sequence[str]) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for start in range(0, len(keys), PAGE_MAX):
            some = keys[start:start + PAGE_MAX]
            found.update(await self._ask(
                _one_scope(some), MetadataRequest(Call.GET_MANY, keys=some)))
        return found

    async def close(self) -> None:
        """End the requests that wait, and finish writing."""
        await self.shards.stop()

    # -- asking the leader

    async def _ask(self, scope: str, request: MetadataRequest) -> list[KeyValue]:
        """The response of the leader; raises its error, or `BackendUnavailable` in the end."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_seconds
        while True:
            try:
                return await self._ask_once(scope, request)
            except OutcomeUnknown:
                raise  # broker.metadata_topic.B1
            except BackendUnavailable:
                if loop.time() + PAUSE_SECONDS >= deadline:
                    raise
            await asyncio.sleep(PAUSE_SECONDS)

    async def _ask_once(self, scope: str, request: MetadataRequest) -> list[KeyValue]:
        try:
            leader = await self.shards.leader_of(scope)
        except QuipuError as error:
            raise BackendUnavailable(f"{REMOTE_LOG_METADATA}: {error}") from error
        if leader == self._node_id:
            return await self._serve_here(scope, request)
        if leader == NO_NODE or self._net is None:
            raise BackendUnavailable(f"{REMOTE_LOG_METADATA}: no node leads the partition of "
                                     f"{scope} now")
        try:
            reply = await self._net.call(leader, CALL_KIND, encode_request(request))
        except PeerUnavailable as error:
            kind = OutcomeUnknown if request.call is Call.EXECUTE else BackendUnavailable
            raise kind(f"{REMOTE_LOG_METADATA}: node {leader}: {error}") from error
        except QuipuError as error:
            raise BackendUnavailable(f"{REMOTE_LOG_METADATA}: node {leader}: {error}") from error
        return decode_response(reply)

    async def _serve_here(self, scope: str, request: MetadataRequest) -> list[KeyValue]:
        shard, code = await self.shards.shard_loaded(scope)
        if shard is None:
            raise (NotMetadataLeader if code is Code.NOT_COORDINATOR else BackendUnavailable)(
                f"{REMOTE_LOG_METADATA}: {scope} is not served here now: {code.name}")
        return await shard.serve(request)

    async def _serve(self, sender: NodeId, body: bytes) -> bytes:
        """Carry out the request of another node (broker.metadata_topic.B2)."""
        if not self._is_registered(sender):
            raise RequestError(f"node {sender} is not registered", kind=ErrorKind.INVALID,
                               code=Code.BROKER_ID_NOT_REGISTERED)
        try:
            request = decode_request(body)
            keys = request.keys[:1] if request.call is Call.PAGE else request.keys
            scope = _one_scope(check_operations(request.operations) or keys)
            return encode_entries(await self._serve_here(scope, request))
        except MalformedBytes as error:
            return encode_error(InvalidStorageRequest(str(error)))
        except MetadataStorageError as error:
            return encode_error(error)


def _one_scope(keys: Sequence[str]) -> str:
    scopes = {scope_of(key) for key in keys}
    if len(scopes) != 1:
        raise InvalidStorageRequest(
            f"{len(scopes)} partitions in one request: {', '.join(sorted(scopes)[:3])}; one step "
            "can only change one")
    return scopes.pop()
