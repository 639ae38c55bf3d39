"""`quipu diskless rebuild`: fills an empty control plane from the objects of a store."""

import asyncio
import sys
import time
from typing import Annotated, Any, Final, NamedTuple
from uuid import UUID

import typer

from quipu.cli.cluster import AsJson, connect, partitions_of
from quipu.cli.diskless_places import (
    ControlPlaneOption,
    StorageOption,
    opened_plane,
    opened_store,
)
from quipu.cli.errors import CommandFailed
from quipu.cli.main import EXIT_FAILED
from quipu.cli.output import count, note, print_json, show
from quipu.client.admin.brokers import describe_cluster
from quipu.client.admin.remote import describe_remote
from quipu.client.admin.topics import TopicDescription, describe_topics
from quipu.client.cluster import Cluster
from quipu.diskless import rebuild as rebuilding
from quipu.diskless.errors import ControlPlaneNotEmpty, ForeignObjects
from quipu.diskless.objects.names import ObjectName
from quipu.diskless.rebuild import RebuildProgress, RebuildReport
from quipu.diskless.rebuild_lineage import lineage_of_segments
from quipu.diskless.rebuild_plan import TieredOffsets
from quipu.diskless.values import LogKey
from quipu.model.errors import Code, QuipuError
from quipu.model.ids import NodeId, Offset
from quipu.model.topics import is_internal
from quipu.remote.metadata.states import RemoteLogSegmentState
from quipu.runtime.clock import SystemClock
from quipu.runtime.rng import SystemRng

PROGRESS_SECONDS: Final = 2.0  # between two lines
_GAP_COLUMNS: Final = ("topic", "partition", "start", "end", "records")
_DAMAGED_COLUMNS: Final = ("object", "why")

Tiers = dict[LogKey, TieredOffsets]


def rebuild(
    *,
    control_plane: ControlPlaneOption,
    storage: StorageOption,
    bootstrap: Annotated[
        str | None,
        typer.Option("--bootstrap", "-b", metavar="HOST:PORT",
                     help="Address of a broker, to learn the names of topics, which of them exist, "
                          "and what their remote tiers have; without it, every topic in the store "
                          "is restored."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Fill an empty control plane from the objects of a store.

    Nothing may write to the control plane meanwhile: brokers that use it must be stopped.  The exit
    code is 1 if an object is damaged, or if no object has some of the offsets.
    """
    known = _known(bootstrap) if bootstrap is not None else _Known()
    report = asyncio.run(_rebuild(control_plane, storage, known))
    _show_report(report, as_json=as_json)
    if report.damaged or report.gaps or report.counts.contradictions:
        raise typer.Exit(EXIT_FAILED)


# -- what the cluster knows


class _Known(NamedTuple):
    """The cluster's topics, the offsets that their remote tiers have, and its id; None: unknown."""

    topics: dict[UUID, tuple[str, int]] | None = None
    tiers: Tiers | None = None
    cluster_id: str | None = None


def _known(bootstrap: str) -> _Known:
    """What a broker knows."""
    with connect(bootstrap) as cluster:
        there = [topic for name, topic in describe_topics(cluster).items()
                 if not is_internal(name)]
        tiers: Tiers = {}
        for topic in there:
            tiers |= _tiers_of(cluster, topic)
        cluster_id = describe_cluster(cluster).cluster_id
    topics = {topic.topic_id: (topic.name, len(topic.partitions)) for topic in there}
    return _Known(topics, tiers, cluster_id)


def _tiers_of(cluster: Cluster, topic: TopicDescription) -> Tiers:
    """The offsets of a topic's partitions that a remote tier has."""
    tiers: Tiers = {}
    for partition in partitions_of(topic):
        try:
            found = describe_remote(cluster, partition)
        except QuipuError as error:
            if error.code is Code.INVALID_CONFIG:
                return {}  # the cluster has no remote tier
            raise CommandFailed(
                f"what the remote tier has of {partition} is not known: {error}") from None
        if not found.is_tiered:
            return {}
        copied = [segment for segment in found.segments
                  if segment.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED]
        if copied:
            tiers[LogKey(topic.topic_id, partition.partition)] = TieredOffsets(
                Offset(min(each.start_offset for each in copied)),
                Offset(max(each.end_offset for each in copied) + 1),
                lineage_of_segments(copied, found.leader_epoch) if found.is_diskless else None)
    return tiers


# -- rebuilding


class _Progress:
    """Says every few seconds on standard error how far it is."""

    def __init__(self) -> None:
        self._said_at = time.monotonic()

    def __call__(self, progress: RebuildProgress) -> None:
        if time.monotonic() - self._said_at < PROGRESS_SECONDS:
            return
        self._said_at = time.monotonic()
        if progress.restored:
            note(f"entered {count(progress.restored, 'object')}")
        else:
            note(f"read {progress.read:,} of {count(progress.listed, 'object')}")
        sys.stderr.flush()


async def _rebuild(control_plane: str, storage: str, known: _Known) -> RebuildReport:
    name = ObjectName(NodeId(0), SystemRng().uuid(), 0)
    async with opened_store(storage) as store, \
            opened_plane(control_plane, must_exist=False) as plane:
        try:
            return await rebuilding.rebuild(
                store, plane, SystemClock(), name=name, topics=known.topics, tiers=known.tiers,
                cluster_id=known.cluster_id, report=_Progress())
        except ControlPlaneNotEmpty as error:
            raise CommandFailed(
                f"{error}; only an empty one is rebuilt, and nothing was changed. If it is to be "
                "replaced, stop the brokers, and give a new database or another SQLite file with "
                "--control-plane") from None
        except ForeignObjects as error:
            raise CommandFailed(
                f"{error}, and nothing was changed; correct --bootstrap or --storage, or leave out "
                "--bootstrap to restore all topics under their ids") from None


# -- the report


def _show_report(report: RebuildReport, *, as_json: bool) -> None:
    counts = report.counts
    gaps = [_gap_row(report, each.log, each.start, each.end) for each in report.gaps]
    damaged = [{"object": key, "why": why} for key, why in report.damaged]
    if as_json:
        for kind, rows in (("gap", gaps), ("damaged", damaged)):
            for row in rows:
                print_json({"kind": kind, **row})
        print_json({
            "kind": "summary", "objects": report.object_count, "topics": len(report.topics),
            "batches": counts.known + counts.without_receipt,
            "without_receipt": counts.without_receipt, "copies": counts.copies,
            "refused": counts.refused, "expired": counts.expired,
            "contradictions": counts.contradictions, "gaps": len(gaps), "damaged": len(damaged),
            "foreign_topics": list(map(str, report.foreign))})
        return
    if gaps:
        show(gaps, _GAP_COLUMNS, as_json=False, title="offsets that no object has:")
    if damaged:
        show(damaged, _DAMAGED_COLUMNS, as_json=False, title="damaged objects:")
    used = counts.known + counts.without_receipt
    note(f"restored {used:,} batch{'' if used == 1 else 'es'} of "
         f"{count(len(report.topics), 'topic')} in {count(report.object_count, 'object')}")
    for number, text in (
            (counts.without_receipt, "placed without a receipt: where they fit, or at the end"),
            (counts.copies, "left out: copies or repetitions of others"),
            (counts.refused, "left out: refused when they were written"),
            (counts.expired, "left out: below the start of their log, or in the remote tier"),
            (counts.contradictions, "left out: their receipts contradict others")):
        if number:
            note(f"  {number:,} {text}")
    if report.foreign:
        note(f"  {count(len(report.foreign), 'topic')} left out that the cluster does not have: "
             f"{', '.join(map(str, report.foreign))}")
    lost = sum(gap["records"] for gap in gaps)
    note(f"{count(lost, 'offset')} in {count(len(gaps), 'gap')} without records, "
         f"{count(len(damaged), 'damaged object')}" if gaps or damaged else "nothing is missing")


def _gap_row(report: RebuildReport, log: LogKey, start: int, end: int) -> dict[str, Any]:
    return {"topic": report.topics[log.topic_id][0], "partition": log.partition, "start": start,
            "end": end, "records": end - start}
