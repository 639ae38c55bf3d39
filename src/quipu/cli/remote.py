"""`quipu remote`: lists and verifies what the remote tier has.

The metadata comes from the leaders of the partitions, wherever they store it.  `verify` opens the
object store itself, with this machine's credentials, and reads every byte.
"""

import asyncio
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from quipu.cli.application import PLAIN
from quipu.cli.cluster import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    check_topics,
    connect,
    partitions_of,
)
from quipu.cli.errors import CommandFailed
from quipu.cli.main import EXIT_FAILED
from quipu.cli.output import count, note, print_json, show
from quipu.client.admin.remote import RemotePartition, describe_remote
from quipu.client.admin.topics import TopicDescription, describe_topics
from quipu.client.cluster import Cluster
from quipu.model.ids import TopicPartition
from quipu.model.topics import is_internal
from quipu.remote.metadata.segment_metadata import RemoteLogSegmentMetadata
from quipu.remote.segments.names import find_name, partition_prefix
from quipu.remote.verification import (
    ListedPartition,
    TierFault,
    TierFinding,
    list_objects,
    name_of,
    verify_partition,
)
from quipu.runtime.clock import SystemClock
from quipu.runtime.objects.store import ObjectStore
from quipu.runtime.objects.urls import FILE, open_store, parse_store_url
from quipu.runtime.workers import Workers

PROGRESS_SECONDS: Final = 2.0  # between two lines on the progress of `verify`
KIB: Final = 1024
_COLUMNS: Final = ("topic", "partition", "start", "end", "state", "size", "epochs", "age", "object")
_FINDING_COLUMNS: Final = ("finding", "topic", "partition", "start", "why", "object")
_STATES: Final = ("copying", "copied", "deleting", "deleted")  # by number

app = typer.Typer(help="List and verify what the remote tier has.", **PLAIN)

Topic = Annotated[
    str | None, typer.Argument(metavar="TOPIC", help="Name of a topic; all if not given.")]
Partitions = Annotated[
    list[int],
    typer.Option("--partition", "-p", min=0, help="Number of a partition; may be repeated."),
]


@app.command("list")
def list_(
    topic: Topic = None,
    *,
    partition: Partitions = [],  # noqa: B006 typer copies it
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """List remote segments: offsets, state, size, leader epochs, age of the state, object.

    As JSON, each has the URL of its object store and its metadata besides.
    """
    with connect(bootstrap) as cluster:
        found = [describe_remote(cluster, each) for each in _tiered(cluster, topic, partition)]
    now_ms = SystemClock().now_ms()
    rows = [_row(each, segment, now_ms) for each in found for segment in each.segments]
    if not rows and not as_json:
        note("nothing is in the remote tier yet")
        return
    if not as_json:
        rows = [{**row, "size": human_size(row["size"]), "age": human_age(row["age"])}
                for row in rows]
    show(rows, _COLUMNS, as_json=as_json)


@app.command()
def verify(
    topic: Topic = None,
    *,
    partition: Partitions = [],  # noqa: B006
    storage: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Object store, if this machine needs another URL for it "
                     "than the brokers, or a file with credentials."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Read and check every byte of every remote segment.

    The exit code is 1 if a segment is damaged or missing.  Objects that no metadata knows are
    reported, and harm nobody.  Credentials come from the environment, as those of a node.
    """
    with connect(bootstrap) as cluster:
        wanted = _tiered(cluster, topic, partition)
        if not wanted:
            note("no topic has a remote tier: there is nothing to verify")
            return
        result = asyncio.run(_verify_all(cluster, wanted, storage, every=topic is None))
    _show_result(result, as_json=as_json)
    if result.is_damaged:
        raise typer.Exit(EXIT_FAILED)


# -- what there is


def _tiered(
    cluster: Cluster, topic: str | None, wanted: Sequence[int]
) -> list[TopicPartition]:
    """The partitions that have a remote tier; raises if a topic is named that has none."""
    if topic is None and wanted:
        raise typer.BadParameter("a partition is one of a topic; name the topic too",
                                 param_hint="--partition")
    there = describe_topics(cluster)
    if topic is None:
        return [partition for name in sorted(there)
                if not is_internal(name) and _has_tier(cluster, there[name])
                for partition in partitions_of(there[name])]
    check_topics([topic], there)
    partitions = partitions_of(there[topic], wanted)
    if not _has_tier(cluster, there[topic]):
        raise CommandFailed(
            f"topic {topic} has no remote tier; "
            f"`quipu topic alter {topic} --config remote.storage.enable=true` gives it one")
    return partitions


def _has_tier(cluster: Cluster, topic: TopicDescription) -> bool:
    return any(describe_remote(cluster, each, with_segments=False).is_tiered
               for each in partitions_of(topic)[:1])


def _row(
    partition: RemotePartition, segment: RemoteLogSegmentMetadata, now_ms: int
) -> dict[str, Any]:
    """A segment as a JSON object."""
    return {
        "topic": partition.partition.topic,
        "partition": partition.partition.partition,
        "start": segment.start_offset,
        "end": segment.end_offset,
        "state": _STATES[segment.state],
        "size": segment.segment_size_bytes,
        "epochs": list(segment.segment_leader_epochs),
        "age": max(0, now_ms - segment.event_timestamp_ms) // 1000,
        "object": name_of(segment).key,
        "id": str(segment.segment_id.id),
        "topic_id": str(partition.partition.topic_id),
        "epoch_offsets": dict(segment.segment_leader_epochs),
        "max_timestamp": segment.max_timestamp_ms,
        "changed": segment.event_timestamp_ms,
        "broker": segment.broker_id,
        "custom_metadata": (segment.custom_metadata or b"").hex(),
        "storage": partition.storage_url,
    }


# -- verifying


class _Result(NamedTuple):
    """What `verify` has found."""

    verified_count: int  # segments that are intact
    verified_bytes: int
    findings: list[TierFinding]

    def count(self, kind: TierFault) -> int:
        return sum(finding.kind is kind for finding in self.findings)

    @property
    def is_damaged(self) -> bool:
        return self.count(TierFault.ORPHAN) < len(self.findings)


class _Progress:
    """Says every few seconds on standard error how far it is."""

    def __init__(self, partition_count: int) -> None:
        self._partition_count = partition_count
        self._partitions = self._segments = self._size = 0
        self._said_at = time.monotonic()

    def segment(self, segment: RemoteLogSegmentMetadata) -> None:
        self._segments += 1
        self._size += segment.segment_size_bytes
        if time.monotonic() - self._said_at >= PROGRESS_SECONDS:
            self._said_at = time.monotonic()
            note(f"verified {count(self._segments, 'segment')}, {human_size(self._size)}; "
                 f"{self._partitions} of {count(self._partition_count, 'partition')} done")
            sys.stderr.flush()

    def partition(self) -> None:
        self._partitions += 1


async def _verify_all(
    cluster: Cluster, wanted: Sequence[TopicPartition], storage: str | None, *, every: bool
) -> _Result:
    """Verify partitions one after the other; with `every` also look for those that are gone."""
    first = describe_remote(cluster, wanted[0], with_segments=False)
    store = _open(storage or first.storage_url)
    workers, progress = Workers(), _Progress(len(wanted))
    findings: list[TierFinding] = []
    segments = size = 0
    try:
        for each in wanted:
            topic_id = cluster.topic(each.topic).topic_id
            report = await verify_partition(
                store, partial(_listed, cluster, each), partition_prefix(topic_id, each.partition),
                run=workers.run, verified=progress.segment)
            progress.partition()
            findings += report.findings
            segments, size = segments + report.verified_count, size + report.verified_bytes
        if every:
            findings += await _of_no_topic(cluster, store)
    finally:
        workers.close()
        await store.close()
    return _Result(segments, size, findings)


def _open(url: str | None) -> ObjectStore:
    if url is None:
        raise CommandFailed("the brokers keep remote segments where only they can read them "
                            "(memory, or a storage manager of one's own)")
    parsed = parse_store_url(url)
    if parsed.scheme == FILE and not Path(parsed.place).is_dir():
        raise CommandFailed(
            f"{url} is not on this machine; run this on a node, or give the URL of the same "
            "directory here with --storage")
    return open_store(url, SystemClock().now_ms)


def _listed(cluster: Cluster, partition: TopicPartition) -> ListedPartition:
    found = describe_remote(cluster, partition)
    return ListedPartition(found.partition, found.segments, found.log_start,
                           found.bounds.local_start)


async def _of_no_topic(cluster: Cluster, store: ObjectStore) -> list[TierFinding]:
    """Segments of topics that do not exist any more; their last leaders may still delete them."""
    objects = await list_objects(store)
    known = {topic.topic_id for topic in describe_topics(cluster).values()}
    named = ((find_name(info.key), info) for info in objects)
    return [TierFinding(TierFault.ORPHAN, "", name.partition, name.start_offset, info.key,
                    f"{info.size} bytes of a topic that does not exist")
            for name, info in named if name is not None and name.topic_id not in known]


def _show_result(result: _Result, *, as_json: bool) -> None:
    rows = [{"finding": each.kind.value, "topic": each.topic, "partition": each.partition,
             "start": each.start, "why": each.why, "object": each.key}
            for each in result.findings]
    if rows:
        show(rows, _FINDING_COLUMNS, as_json=as_json)
    if as_json:
        print_json({"verified": result.verified_count, "bytes": result.verified_bytes,
                    **{kind.value: result.count(kind) for kind in TierFault}})
        return
    found = [f"{result.count(kind)} {kind.value}" for kind in TierFault if result.count(kind)]
    note(f"{count(result.verified_count, 'segment')} of {human_size(result.verified_bytes)} "
         f"{'is' if result.verified_count == 1 else 'are'} intact; "
         f"{', '.join(found) or 'nothing is wrong'}")


# -- for people


def human_size(size: int) -> str:
    """`12 B`, `3.4 MiB`."""
    if size < KIB:
        return f"{size} B"
    amount = float(size)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        amount /= KIB
        if amount < KIB or unit == "TiB":
            break
    return f"{amount:.1f} {unit}"


def human_age(seconds: int) -> str:
    """`12s`, `3m`, `4h`, `5d`: the largest unit of which there are at least two."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
