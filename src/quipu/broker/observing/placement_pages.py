"""Placements of diskless partitions as JSON, on the HTTP port.

    /placement?topic=NAME&limit=100&from=NAME:PARTITION
        the placements of diskless partitions by topic and number; of all topics, or of those that
        are named, each by a `topic`.  `next` is the value of `from` for the next page, null at the
        end
    /placement/racks
        the racks with their states, and the replication factor that follows from them

Any node responds, from its own metadata.  What only the controller knows, the backlog, is null on
other nodes.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from http import HTTPStatus
from itertools import islice
from typing import Final, NamedTuple

from quipu.broker.observing.http import (
    JSON,
    HttpResponse,
    Query,
    QueryRoute,
    json_response,
)
from quipu.broker.serving.context import Broker
from quipu.broker.serving.placements import Placements
from quipu.controller.topic_state import PartitionState, Topic

LIMIT: Final = 100
LIMIT_MAX: Final = 1000

Brokers = Callable[[], Iterable[Broker]]  # none while the node starts


class _Asked(NamedTuple):
    """A page that is asked for."""

    topics: frozenset[str]  # none: all
    limit: int
    first: tuple[str, int]  # topic and partition


class _BadQuery(Exception):
    """The query of a URL cannot be understood."""


def routes(brokers: Brokers) -> dict[str, QueryRoute]:
    """The routes of placements."""
    return {"/placement": partial(_answer, brokers, _placement),
            "/placement/racks": partial(_answer, brokers, _racks)}


def _answer(
    brokers: Brokers, make: Callable[[Broker, Query], HttpResponse], query: Query
) -> HttpResponse:
    for broker in brokers():
        try:
            return make(broker, query)
        except _BadQuery as error:
            return json_response(HTTPStatus.BAD_REQUEST, {"error": str(error)})
    return json_response(HTTPStatus.SERVICE_UNAVAILABLE, {"error": "the node starts"})


# -- partitions


def _placement(broker: Broker, query: Query) -> HttpResponse:
    asked = _asked(query)
    topics = {topic.name: topic for topic in broker.cluster.state.diskless_topics()}
    for name in sorted(asked.topics):
        if name not in topics:
            return json_response(
                HTTPStatus.NOT_FOUND, {"error": f"there is no diskless topic {name}"})
    wanted = [topics[name] for name in sorted(topics)
              if (not asked.topics or name in asked.topics) and name >= asked.first[0]]
    return HttpResponse(HTTPStatus.OK, JSON, _page(Placements(broker), wanted, asked))


def _asked(query: Query) -> _Asked:
    if unknown := sorted(query.keys() - {"topic", "limit", "from"}):
        raise _BadQuery(f"there is no parameter {unknown[0]}; there are topic, limit, from")
    limit = query.get("limit", [str(LIMIT)])[-1]
    if not limit.isascii() or not limit.isdigit() or not 1 <= int(limit[:9]) <= LIMIT_MAX:
        raise _BadQuery(f"limit is a number from 1 to {LIMIT_MAX}")
    topic, colon, partition = query.get("from", [":0"])[-1].rpartition(":")
    if not colon or not partition.isascii() or not partition.isdigit() or len(partition) > 9:
        raise _BadQuery("from is TOPIC:PARTITION, the `next` of the page before")
    return _Asked(frozenset(query.get("topic", ())), int(limit), (topic, int(partition)))


def _page(placements: Placements, topics: Sequence[Topic], asked: _Asked) -> Iterator[str]:
    head = {"effective_rf": placements.effective_factor,
            "auto_reconcile": placements.auto_reconcile}
    yield json.dumps(head)[:-1] + ', "partitions": ['
    partitions = _partitions(topics, asked.first)
    separator = ""
    for topic, index in islice(partitions, asked.limit):
        row = partition_row(placements, topic.name, index, topic.partitions[index])
        yield separator + json.dumps(row)
        separator = ", "
    after = next(partitions, None)
    following = None if after is None else f"{after[0].name}:{after[1]}"
    yield f'], "next": {json.dumps(following)}}}\n'


def _partitions(
    topics: Sequence[Topic], first: tuple[str, int]
) -> Iterator[tuple[Topic, int]]:
    for topic in topics:
        start = first[1] if topic.name == first[0] else 0
        for index in range(start, len(topic.partitions)):
            yield topic, index


def partition_row(
    placements: Placements, topic: str, index: int, partition: PartitionState
) -> dict[str, object]:
    """The placement of a partition."""
    found = placements.of(partition)
    return {
        "topic": topic, "partition": index, "leader": partition.leader,
        "replicas": partition.replicas, "target_racks": found.target_racks,
        "assigned_racks": found.assigned_racks, "rack_coverage": found.rack_coverage,
        "placement_state": found.state.name.lower(), "placement_drift": found.is_drifted,
        "exceptions": found.exceptions}


# -- racks


def _racks(broker: Broker, query: Query) -> HttpResponse:
    if query:
        raise _BadQuery("there are no parameters")
    placements, reconciliation = Placements(broker), broker.cluster.reconciliation
    return json_response(HTTPStatus.OK, {
        "effective_rf": placements.effective_factor,
        "auto_reconcile": placements.auto_reconcile,
        "rack_unavailable_threshold_ms": placements.threshold_ms,
        "is_controller": reconciliation.is_active,
        "reassignment_backlog": reconciliation.backlog if reconciliation.is_active else None,
        "racks": [{"rack": rack.name, "rack_state": rack.state.name,
                   "rack_degraded_since_ms": rack.degraded_since_ms,
                   "brokers": rack.brokers, "eligible_brokers": rack.eligible}
                  for rack in placements.racks.values()]})
