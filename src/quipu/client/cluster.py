"""A cluster as its clients see it: connections to its brokers, its topics, and their offsets.

    with Cluster(client_settings({"bootstrap.servers": "localhost:9092"})) as cluster:
        parts = cluster.partitions(["orders"])
        cluster.earliest(parts), cluster.latest(parts)
        cluster.at_times(dict.fromkeys(parts, 1_700_000_000_000))

Whatever passes by itself (a broker restarts, a partition gets another leader) is retried within
default.api.timeout.ms; what is raised will not go away by waiting.  Reading is in `fetch`.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple, Self
from uuid import UUID

from quipu.client.connection import Connection
from quipu.client.errors import ClientError, ConnectionFailed, UnknownTopic, refused
from quipu.client.metadata import Leader, Metadata, Topic, from_answer
from quipu.client.retry import Retry
from quipu.client.settings import ClientSettings, bootstrap
from quipu.model.errors import Code, Kind
from quipu.model.ids import TopicPartition
from quipu.model.settings_types import Address
from quipu.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from quipu.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

LATEST: Final = -1
EARLIEST: Final = -2
UNKNOWN_SECONDS: Final = 1.0  # a topic that was made a moment ago is not known everywhere


class FoundOffset(NamedTuple):
    """What a broker found for a timestamp; -1 for nothing."""

    offset: int
    timestamp_ms: int


class Cluster:
    """See above.  Not for more than one thread."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._given = bootstrap(settings)
        self._metadata = Metadata({}, {}, {})
        self._ages: dict[str, float] = {}  # when each topic was asked for
        self._connections: dict[Address, Connection] = {}
        self._idle: dict[Address, list[Connection]] = {}  # those that were given back

    # -- connections

    def close(self) -> None:
        """Close every connection; the cluster may be used again, and connects anew."""
        idle = [each for those in self._idle.values() for each in those]
        for connection in (*self._connections.values(), *idle):
            connection.close()
        self._connections.clear()
        self._idle.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def connection(self, node_id: int) -> Connection:
        """An open connection to a broker that the metadata tells about, for short questions."""
        return self.connection_at(self._address(node_id))

    def any_connection(self) -> Connection:
        """An open connection to some broker."""
        problems = []
        for address in self._addresses():
            try:
                return self.connection_at(address)
            except ConnectionFailed as error:
                problems.append(str(error))
        raise ConnectionFailed(f"no broker answers: {'; '.join(problems[:5])}")

    def lend(self, node_id: int) -> Connection:
        """A connection for one user alone, who gives it back or closes it."""
        idle = self._idle.get(self._address(node_id), [])
        while idle:
            if (known := idle.pop()).is_open:
                return known
        return Connection(self._address(node_id), self.settings)

    def give_back(self, connection: Connection) -> None:
        """Keep a connection for the next user; one that waits for an answer is of no use."""
        if connection.is_quiet:
            self._idle.setdefault(connection.address, []).append(connection)
        else:
            connection.close()

    def connection_at(self, address: Address, *, deadline: float | None = None) -> Connection:
        """An open connection to an address, made if there is none."""
        known = self._connections.get(address)
        if known is None or not known.is_open:
            known = Connection(address, self.settings, deadline=deadline)
            self._connections[address] = known
        return known

    def _address(self, node_id: int) -> Address:
        address = self._metadata.brokers.get(node_id)
        if address is None:
            raise ConnectionFailed(f"node {node_id} is not among the cluster's brokers")
        return address

    # -- topics

    def topics(self, matching: Callable[[list[str]], list[str]] | None = None) -> list[str]:
        """The names of all topics, or those that `matching` picks; it is not shown internal ones.

        Unless exclude.internal.topics is false.
        """
        found = self._ask_metadata(None).topics
        if matching is None:
            return sorted(found)
        hidden = self.settings.exclude_internal_topics
        return matching(sorted(
            name for name, topic in found.items() if not (hidden and topic.is_internal)))

    def topic(self, name: str) -> Topic:
        """A topic, as it was told at most metadata.max.age.ms ago."""
        self.know((name,))
        return self._metadata.topics[name]

    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        """Every partition that some topics have now; `UnknownTopic` if one does not exist."""
        names = list(dict.fromkeys(topics))
        self.refresh(names)
        return [TopicPartition(name, partition)
                for name in names for partition in self._metadata.topics[name].partitions]

    def topic_ids(self, topics: Iterable[str]) -> dict[str, UUID]:
        """The ids of topics, as last told; a topic that is made anew gets another."""
        return {name: self.topic(name).topic_id for name in topics}

    def leader(self, partition: TopicPartition) -> Leader:
        """Who leads a partition; `UnknownTopic` if there is no such partition."""
        self.know((partition.topic,))
        found = self._metadata.leader(partition)
        if found is None:  # what is known may be from before the topic got more partitions
            self.refresh((partition.topic,))
            found = self._metadata.leader(partition)
        if found is None:
            raise UnknownTopic(f"there is no partition {partition}")
        return found

    def refresh(self, topics: Collection[str]) -> None:
        """Ask anew who leads these topics, until each of them has been told."""
        retry = Retry(self.settings)
        patience = min(UNKNOWN_SECONDS, self.settings.default_api_timeout_ms / 1000)
        unknown = Retry(self.settings, seconds=patience)
        while topics:
            told = self._ask_metadata(topics)
            self._remember(told, topics)
            error = self._untold(told, topics)
            if error is None:
                return
            (unknown if isinstance(error, UnknownTopic) else retry).pause(error)

    def know(self, topics: Collection[str]) -> None:
        """Refresh those of which nothing is known, or what is known is old."""
        now = time.monotonic()
        age_max = self.settings.metadata_max_age_ms / 1000
        old = [name for name in topics if name not in self._metadata.topics
               or now - self._ages.get(name, -1e9) > age_max]
        self.refresh(old)

    def _remember(self, told: Metadata, asked: Collection[str]) -> None:
        now = time.monotonic()
        kept = {name: topic for name, topic in self._metadata.topics.items() if name not in asked}
        self._metadata = Metadata(told.brokers, {**kept, **told.topics}, {})
        for name in told.topics:
            self._ages[name] = now

    @staticmethod
    def _untold(told: Metadata, asked: Collection[str]) -> ClientError | None:
        """Why a topic that was asked for is missing, if one is."""
        for name in asked:
            if name in told.topics:
                continue
            code = told.errors.get(name, Code.UNKNOWN_TOPIC_OR_PARTITION)
            if code == Code.UNKNOWN_TOPIC_OR_PARTITION:
                return UnknownTopic(f"there is no topic {name}")
            return refused(code, f"metadata of topic {name}")
        return None

    def _ask_metadata(self, topics: Collection[str] | None) -> Metadata:
        """Ask any broker; those that are connected first, then known ones, then those given."""
        retry = Retry(self.settings)
        asked = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(
            topics=asked, allow_auto_topic_creation=self.settings.allow_auto_create_topics)
        while True:
            problems: list[ClientError] = []
            for address in self._addresses():
                try:
                    connection = self.connection_at(address, deadline=retry.deadline)
                    answer = connection.ask(request, MetadataResponse)
                except ConnectionFailed as error:
                    problems.append(error)
                    continue
                if answer.error_code:
                    problems.append(refused(answer.error_code, f"metadata from {address}"))
                    continue
                return from_answer(answer)
            words = "; ".join(dict.fromkeys(str(each) for each in problems[:5]))
            hopeless = all(each.kind is Kind.INVALID for each in problems)
            retry.pause(ConnectionFailed(
                f"no broker answers: {words}", kind=Kind.INVALID if hopeless else Kind.RETRY))

    def _addresses(self) -> list[Address]:
        connected = [address for address, each in self._connections.items() if each.is_open]
        return list(dict.fromkeys([*connected, *self._metadata.brokers.values(), *self._given]))

    # -- offsets

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset kept of each partition."""
        found = self.offsets(dict.fromkeys(partitions, EARLIEST))
        return {partition: each.offset for partition, each in found.items()}

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition that this client may read."""
        found = self.offsets(dict.fromkeys(partitions, LATEST))
        return {partition: each.offset for partition, each in found.items()}

    def at_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset whose record is not older than a time; None if all are older."""
        found = self.offsets(times_ms)
        return {partition: None if each.offset < 0 else each.offset
                for partition, each in found.items()}

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, FoundOffset]:
        """Look up a timestamp, or LATEST or EARLIEST, in each of many partitions."""
        retry = Retry(self.settings)
        left = dict(wanted)
        found: dict[TopicPartition, FoundOffset] = {}
        while left:
            answered, error = self._ask_offsets(left)
            found |= answered
            left = {partition: time_ms for partition, time_ms in left.items()
                    if partition not in answered}
            if left:
                retry.pause(error or refused(Code.UNKNOWN_SERVER_ERROR, "offsets left out"))
                self.refresh({partition.topic for partition in left})
        return {partition: found[partition] for partition in wanted}

    def _ask_offsets(
        self, wanted: Mapping[TopicPartition, int]
    ) -> tuple[dict[TopicPartition, FoundOffset], ClientError | None]:
        """One attempt: what was found, and why the rest was not."""
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        error: ClientError | None = None
        self.know({partition.topic for partition in wanted})
        for partition, time_ms in wanted.items():
            leader = self.leader(partition).node_id
            if leader < 0:
                error = refused(Code.LEADER_NOT_AVAILABLE, f"offsets of {partition}")
            else:
                by_leader.setdefault(leader, {})[partition] = time_ms
        found: dict[TopicPartition, FoundOffset] = {}
        sent: list[Connection] = []
        try:
            for leader, asked in by_leader.items():
                try:
                    connection = self.connection(leader)
                    connection.send(self._list_offsets(asked))
                    sent.append(connection)
                except ConnectionFailed as failure:
                    error = failure
            while sent:
                try:
                    answer = sent.pop().receive()
                except ConnectionFailed as failure:
                    error = failure
                    continue
                assert isinstance(answer, ListOffsetsResponse)
                error = _take_offsets(answer, wanted, found) or error
        finally:
            for connection in sent:  # only after an error: nobody waits for these answers
                connection.close()
        return found, error

    def _list_offsets(self, wanted: Mapping[TopicPartition, int]) -> ListOffsetsRequest:
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for (topic, partition), time_ms in wanted.items():
            topics.setdefault(topic, []).append(
                ListOffsetsPartition(partition_index=partition, timestamp=time_ms))
        return ListOffsetsRequest(
            replica_id=-1, isolation_level=int(self.settings.read_committed),
            timeout=self.settings.request_timeout_ms,
            topics=[ListOffsetsTopic(name=name, partitions=parts)
                    for name, parts in topics.items()])


def _take_offsets(
    answer: ListOffsetsResponse, wanted: Mapping[TopicPartition, int],
    found: dict[TopicPartition, FoundOffset],
) -> ClientError | None:
    """Put what an answer found into `found`; an error of one of its partitions, if there is one."""
    error = None
    for topic in answer.topics:
        for part in topic.partitions:
            partition = TopicPartition(topic.name, part.partition_index)
            if part.error_code:
                error = refused(part.error_code, f"offsets of {partition}")
            elif part.offset >= 0 or wanted.get(partition, EARLIEST) >= 0:  # an end is somewhere
                found[partition] = FoundOffset(part.offset, part.timestamp)
    return error
