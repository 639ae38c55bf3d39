"""A cluster as its clients see it: connections to its brokers, its topics, and their offsets.

    with Cluster(client_settings({"bootstrap.servers": "localhost:9092"})) as cluster:
        parts = cluster.partitions(["orders"])
        cluster.earliest(parts), cluster.latest(parts)
        cluster.at_times(dict.fromkeys(parts, 1_700_000_000_000))

A failure that passes by itself (a broker restarts, a partition gets another leader) is retried for
default.api.timeout.ms; an error that is raised will not pass by waiting.

Not here: reading (`fetch`), requests that change a cluster (`admin`).
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple, Self
from uuid import UUID

from quipu.client.connection import BrokerConnection
from quipu.client.errors import ClientError, ConnectionFailed, UnknownTopic, broker_refused
from quipu.client.metadata import LeaderMetadata, Metadata, TopicMetadata, from_response
from quipu.client.retry import Retry
from quipu.client.settings import ClientSettings, bootstrap
from quipu.model.errors import Code, ErrorKind
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
UNKNOWN_SECONDS: Final = 1.0  # brokers learn of a topic a moment after its creation
ELECTION_SECONDS: Final = 5.0  # in which a partition whose leader failed has another, if it can


class FoundOffset(NamedTuple):
    """The offset and timestamp that a broker found; both are -1 if there is no such record."""

    offset: int
    timestamp_ms: int


class Cluster:
    """A client of one cluster.  It may be used by one thread only."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._bootstrap = bootstrap(settings)
        self._metadata = Metadata({}, {}, {})
        self._received: dict[str, float] = {}  # when the metadata of each topic came
        self._connections: dict[Address, BrokerConnection] = {}
        self._idle: dict[Address, list[BrokerConnection]] = {}  # lent once and given back

    # -- connections

    def close(self) -> None:
        """Close every connection; a later call connects again."""
        idle = [each for connections in self._idle.values() for each in connections]
        for connection in (*self._connections.values(), *idle):
            connection.close()
        self._connections.clear()
        self._idle.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def connection(self, node_id: int) -> BrokerConnection:
        """An open connection to a broker of the metadata, for requests with short responses."""
        return self.connection_at(self._address(node_id))

    def any_connection(self) -> BrokerConnection:
        """An open connection to some broker."""
        problems = []
        for address in self.addresses():
            try:
                return self.connection_at(address)
            except ConnectionFailed as error:
                problems.append(str(error))
        raise ConnectionFailed(f"no broker responds: {'; '.join(problems[:5])}")

    def addresses(self) -> list[Address]:
        """Addresses of brokers: connected ones, those of the metadata, then bootstrap.servers."""
        connected = [address for address, each in self._connections.items() if each.is_open]
        return list(dict.fromkeys([*connected, *self._metadata.brokers.values(), *self._bootstrap]))

    def brokers(self) -> dict[int, Address]:
        """Every broker that the cluster has now, by its id."""
        found = self._ask_metadata(())
        self._remember(found, ())
        return dict(found.brokers)

    def lend(self, node_id: int) -> BrokerConnection:
        """A connection for this caller alone, which gives it back or closes it."""
        idle = self._idle.get(self._address(node_id), [])
        while idle:
            if (known := idle.pop()).is_open:
                return known
        return BrokerConnection(self._address(node_id), self.settings)

    def give_back(self, connection: BrokerConnection) -> None:
        """Keep a lent connection for the next caller; close it if a response is outstanding."""
        if connection.is_quiet:
            self._idle.setdefault(connection.address, []).append(connection)
        else:
            connection.close()

    def connection_at(self, address: Address, *, deadline: float | None = None) -> BrokerConnection:
        """An open connection to an address, made if there is none."""
        known = self._connections.get(address)
        if known is None or not known.is_open:
            known = BrokerConnection(address, self.settings, deadline=deadline)
            self._connections[address] = known
        return known

    def is_connected(self, address: Address) -> bool:
        """Is there an open connection to an address?"""
        known = self._connections.get(address)
        return known is not None and known.is_open

    def _address(self, node_id: int) -> Address:
        address = self._metadata.brokers.get(node_id)
        if address is None:
            raise ConnectionFailed(f"node {node_id} is not among the cluster's brokers")
        return address

    # -- topics

    def topics(self, matching: Callable[[list[str]], list[str]] | None = None) -> list[str]:
        """The names of all topics, or those that `matching` picks.

        With exclude.internal.topics, `matching` is not given the names of internal topics.
        """
        found = self._ask_metadata(None).topics
        if matching is None:
            return sorted(found)
        hidden = self.settings.exclude_internal_topics
        return matching(sorted(
            name for name, topic in found.items() if not (hidden and topic.is_internal)))

    def topic(self, name: str) -> TopicMetadata:
        """The metadata of a topic, at most metadata.max.age.ms old."""
        self.refresh_old((name,))
        return self._metadata.topics[name]

    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        """Every partition that some topics have now; `UnknownTopic` if one does not exist."""
        names = list(dict.fromkeys(topics))
        self.refresh(names)
        return [TopicPartition(name, partition)
                for name in names for partition in self._metadata.topics[name].partitions]

    def topic_ids(self, topics: Iterable[str]) -> dict[str, UUID]:
        """The ids of topics by the last metadata; a topic that is recreated gets another id."""
        return {name: self.topic(name).topic_id for name in topics}

    def leader(self, partition: TopicPartition) -> LeaderMetadata:
        """The leader of a partition; `UnknownTopic` if there is no such partition."""
        self.refresh_old((partition.topic,))
        found = self._metadata.leader(partition)
        if found is None:  # the metadata may be from before the topic got more partitions
            self.refresh((partition.topic,))
            found = self._metadata.leader(partition)
        if found is None:
            raise UnknownTopic(f"there is no partition {partition}")
        return found

    def refresh(self, topics: Collection[str]) -> None:
        """Request the metadata of topics until it has come for each of them."""
        retry = Retry(self.settings)
        unknown_seconds = min(UNKNOWN_SECONDS, self.settings.default_api_timeout_ms / 1000)
        unknown = Retry(self.settings, seconds=unknown_seconds)
        while topics:
            found = self._ask_metadata(topics)
            self._remember(found, topics)
            error = self._missing(found, topics)
            if error is None:
                return
            (unknown if isinstance(error, UnknownTopic) else retry).pause(error)

    def refresh_old(self, topics: Collection[str]) -> None:
        """Refresh topics without metadata, or with metadata older than metadata.max.age.ms."""
        now = time.monotonic()
        age_max = self.settings.metadata_max_age_ms / 1000
        old = [name for name in topics if name not in self._metadata.topics
               or now - self._received.get(name, -1e9) > age_max]
        self.refresh(old)

    def _remember(self, found: Metadata, asked: Collection[str]) -> None:
        now = time.monotonic()
        kept = {name: topic for name, topic in self._metadata.topics.items() if name not in asked}
        self._metadata = Metadata(found.brokers, {**kept, **found.topics}, {})
        for name in found.topics:
            self._received[name] = now

    @staticmethod
    def _missing(found: Metadata, asked: Collection[str]) -> ClientError | None:
        """The error for the first requested topic that the metadata lacks; None if it has all."""
        for name in asked:
            if name in found.topics:
                continue
            code = found.errors.get(name, Code.UNKNOWN_TOPIC_OR_PARTITION)
            if code == Code.UNKNOWN_TOPIC_OR_PARTITION:
                return UnknownTopic(f"there is no topic {name}")
            return broker_refused(code, f"metadata of topic {name}")
        return None

    def _ask_metadata(self, topics: Collection[str] | None) -> Metadata:
        """Request metadata from the first broker of `addresses` that responds."""
        retry = Retry(self.settings)
        asked = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(
            topics=asked, allow_auto_topic_creation=self.settings.allow_auto_create_topics)
        while True:
            problems: list[ClientError] = []
            for address in self.addresses():
                try:
                    connection = self.connection_at(address, deadline=retry.deadline)
                    response = connection.ask(request, MetadataResponse)
                except ConnectionFailed as error:
                    problems.append(error)
                    continue
                if response.error_code:
                    problems.append(broker_refused(response.error_code, f"metadata from {address}"))
                    continue
                return from_response(response)
            reasons = "; ".join(dict.fromkeys(str(each) for each in problems[:5]))
            hopeless = all(each.kind is ErrorKind.INVALID for each in problems)
            retry.pause(ConnectionFailed(
                f"no broker responds: {reasons}",
                kind=ErrorKind.INVALID if hopeless else ErrorKind.RETRY))

    # -- offsets

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The log start offset of each partition."""
        found = self.offsets(dict.fromkeys(partitions, EARLIEST))
        return {partition: each.offset for partition, each in found.items()}

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition that isolation.level lets through."""
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
            now_found, error = self._ask_offsets(left)
            found |= now_found
            left = {partition: time_ms for partition, time_ms in left.items()
                    if partition not in now_found}
            if left:
                retry.pause(error or broker_refused(Code.UNKNOWN_SERVER_ERROR, "offsets left out"))
                self.refresh({partition.topic for partition in left})
        return {partition: found[partition] for partition in wanted}

    def offsets_where_led(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, FoundOffset]:
        """As `offsets`, without the partitions that have no leader for longer than an election."""
        election = Retry(self.settings, seconds=min(
            ELECTION_SECONDS, self.settings.default_api_timeout_ms / 1000))
        left = dict(wanted)
        while True:
            self.refresh({partition.topic for partition in left})
            led = {each: at for each, at in left.items() if self.leader(each).node_id >= 0}
            if len(led) == len(left) or election.is_over:
                return self.offsets(led)
            time.sleep(election.next_pause())

    def _ask_offsets(
        self, wanted: Mapping[TopicPartition, int]
    ) -> tuple[dict[TopicPartition, FoundOffset], ClientError | None]:
        """Try once: the offsets found, and an error if some were not."""
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        error: ClientError | None = None
        self.refresh_old({partition.topic for partition in wanted})
        for partition, time_ms in wanted.items():
            leader = self.leader(partition).node_id
            if leader < 0:
                error = broker_refused(Code.LEADER_NOT_AVAILABLE, f"offsets of {partition}")
            else:
                by_leader.setdefault(leader, {})[partition] = time_ms
        found: dict[TopicPartition, FoundOffset] = {}
        sent: list[BrokerConnection] = []
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
                    response = sent.pop().receive()
                except ConnectionFailed as failure:
                    error = failure
                    continue
                assert isinstance(response, ListOffsetsResponse)
                error = _take_offsets(response, wanted, found) or error
        finally:
            for connection in sent:  # not empty only if an error was raised: drop the responses
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
    response: ListOffsetsResponse, wanted: Mapping[TopicPartition, int],
    found: dict[TopicPartition, FoundOffset],
) -> ClientError | None:
    """Put the offsets of a response into `found`; returns the error of a partition, if any."""
    error = None
    for topic in response.topics:
        for part in topic.partitions:
            partition = TopicPartition(topic.name, part.partition_index)
            if part.error_code:
                error = broker_refused(part.error_code, f"offsets of {partition}")
            elif part.offset >= 0 or wanted.get(partition, EARLIEST) >= 0:  # a log has ends
                found[partition] = FoundOffset(part.offset, part.timestamp)
    return error
