"""`quipu diskless tier`: moves old records of diskless topics to the remote tier, on Spark.

The driver, which is this process, asks the control plane and writes the metadata of segments; the
executors get the URLs of the two object stores, and nothing else.  Credentials of the stores come
from the environment of each process.
"""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Annotated, Final
from uuid import UUID

import typer

from quipu.cli.cluster import AsJson, assignments, connect
from quipu.cli.errors import CommandFailed
from quipu.cli.main import EXIT_FAILED
from quipu.cli.output import count, note, print_json
from quipu.cli.remote import human_size
from quipu.client.admin.brokers import describe_cluster
from quipu.client.admin.topics import topic_settings
from quipu.client.cluster import Cluster
from quipu.diskless.control_plane.belonging import belong
from quipu.diskless.control_plane.interface import ControlPlane
from quipu.diskless.control_plane.urls import open_control_plane
from quipu.diskless.tiering.executor import segment_storage
from quipu.diskless.tiering.job import CopyAll, JobReport, JobTarget, TieredTopic, run_job
from quipu.diskless.tiering.plan import SEGMENT_SIZE_MAX, local_retention
from quipu.diskless.tiering.steps import OwnLeading, StepServices
from quipu.remote.metadata.factory import make_metadata_manager
from quipu.remote.segments.writer import CHUNK_SIZE
from quipu.runtime.clock import SystemClock
from quipu.runtime.objects.urls import MEMORY, open_store, parse_store_url
from quipu.runtime.rng import Rng, SystemRng

LEASE_MS: Final = 60_000
NO_BROKER: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TierOptions:
    """Where everything is, and what is given instead of the topics' own settings."""

    control_plane: str
    metadata: str
    target: JobTarget
    bootstrap: str | None
    topics: Collection[str]
    cluster_id: str | None
    local_retention_ms: int | None
    segment_size: int | None
    segment_ms: int | None
    lease_ms: int


ControlPlaneUrl = Annotated[
    str, typer.Option("--control-plane", metavar="URL", envvar="QUIPU_DISKLESS_CONTROL_PLANE_URL",
                      help="Control plane, as diskless.control.plane.url of the nodes.")]
StorageUrl = Annotated[
    str, typer.Option("--storage", metavar="URL",
                      help="Objects, as diskless.storage.url; executors must reach it.")]
RemoteStorageUrl = Annotated[
    str, typer.Option("--remote-storage", metavar="URL",
                      help="Segments, as remote.log.storage.url; executors must reach it.")]
MetadataUrl = Annotated[
    str, typer.Option("--metadata", metavar="URL", envvar="QUIPU_REMOTE_METADATA_URL",
                      help="Metadata of segments, as rlmm.config.metadata.storage.url.")]
Bootstrap = Annotated[
    str | None, typer.Option("--bootstrap", "-b", metavar="HOST:PORT",
                             help="Address of a broker, which knows the topics' settings.")]
Topics = Annotated[
    list[str], typer.Option("--topic", help="Name of a topic, may be repeated; all with a remote "
                            "tier if not given.")]
Master = Annotated[str | None, typer.Option(metavar="URL", help="Master URL of Spark. [local[*]]")]
Age = Annotated[
    int | None, typer.Option(min=0, help="Age from which records are moved, instead of the topics' "
                             "own local.retention.ms.")]
SegmentBytes = Annotated[
    int | None, typer.Option(min=1, help="Size of a segment, instead of the topics' own.")]
SegmentMs = Annotated[
    int | None, typer.Option(min=0, help="How much older records are before they become a segment "
                             "that is not full, instead of the topics' own.")]
ClusterId = Annotated[
    str | None, typer.Option(metavar="ID", help="Id of the cluster, without --bootstrap.")]
ChunkBytes = Annotated[int, typer.Option(min=1024, help="As remote.log.chunk.bytes of the nodes.")]
Compress = Annotated[
    bool, typer.Option("--compress", help="As remote.log.compression=zstd of the nodes.")]
LeaseMs = Annotated[
    int, typer.Option(min=100, help="How long others wait for a job that has ended early.")]
Settings = Annotated[
    list[str], typer.Option("--set", metavar="KEY=VALUE",
                            help="A setting of Spark; may be repeated.")]


def tier(
    *,
    control_plane: ControlPlaneUrl,
    storage: StorageUrl,
    remote_storage: RemoteStorageUrl,
    metadata: MetadataUrl,
    bootstrap: Bootstrap = None,
    topic: Topics = [],  # noqa: B006 typer copies it
    master: Master = None,
    local_retention_ms: Age = None,
    segment_bytes: SegmentBytes = None,
    segment_ms: SegmentMs = None,
    cluster_id: ClusterId = None,
    chunk_bytes: ChunkBytes = CHUNK_SIZE,
    compress: Compress = False,
    lease_ms: LeaseMs = LEASE_MS,
    settings: Settings = [],  # noqa: B006
    as_json: AsJson = False,
) -> None:
    """Move old records of diskless topics to the remote tier, on Spark.

    Records older than local.retention.ms become segments of the remote tier and leave the control
    plane.  A job that is interrupted is continued by the next one, or by a broker.
    """
    if bootstrap is None and (cluster_id is None or local_retention_ms is None):
        raise typer.BadParameter("give the address of a broker, or else --cluster-id and "
                                 "--local-retention-ms", param_hint="--bootstrap")
    for name, url in (("--storage", storage), ("--remote-storage", remote_storage)):
        if parse_store_url(url).scheme == MEMORY:
            raise typer.BadParameter("executors cannot reach the memory of another process",
                                     param_hint=name)
    options = TierOptions(
        control_plane=control_plane, metadata=metadata, bootstrap=bootstrap, topics=topic,
        target=JobTarget(storage, remote_storage, chunk_bytes, compress), cluster_id=cluster_id,
        local_retention_ms=local_retention_ms, segment_size=segment_bytes, segment_ms=segment_ms,
        lease_ms=lease_ms)
    report = asyncio.run(run_tier(options, _copies(master, assignments(settings, "--set"))))
    _show(report, as_json=as_json)
    if report.errors:
        raise typer.Exit(EXIT_FAILED)


def _copies(master: str | None, settings: dict[str, str]) -> CopyAll:
    if find_spec("pyspark") is None:
        raise CommandFailed("Spark is not installed; `pip install quipu[sql]` installs it")
    from quipu.pipeline.spark.session.sessions import session  # noqa: PLC0415 Spark, only now
    from quipu.pipeline.spark.tiering.copies import spark_copies  # noqa: PLC0415

    return spark_copies(session(master, settings=settings))


async def run_tier(options: TierOptions, copy_all: CopyAll) -> JobReport:
    """Run the job; `copy_all` copies segments, and blocks until it has."""
    rng = SystemRng()
    plane = open_control_plane(options.control_plane, rng=rng)
    await plane.open()
    try:
        topics, cluster_id = await _topics(options, plane)
        return await _moved(options, plane, topics, cluster_id, copy_all)
    finally:
        await plane.close()


async def _moved(
    options: TierOptions, plane: ControlPlane, topics: list[TieredTopic], cluster_id: str,
    copy_all: CopyAll,
) -> JobReport:
    rng, clock, target = SystemRng(), SystemClock(), options.target
    metadata = make_metadata_manager(
        {"rlmm.config.metadata.storage.url": options.metadata}, broker_id=NO_BROKER, rng=rng,
        cluster_id=lambda: cluster_id)
    await metadata.open()
    store = open_store(target.segments_url, clock.now_ms)
    storage = segment_storage(store, chunk_size=target.chunk_size, compress=target.compress)
    try:
        services = StepServices(
            plane=plane, metadata=metadata, leading=OwnLeading(metadata), storage=storage,
            store=store, clock=clock, broker_id=NO_BROKER, owner=_owner(rng),
            lease_ms=options.lease_ms)
        return await run_job(services, topics, target, copy_all, wait_ms=options.lease_ms)
    finally:
        await storage.close()
        await metadata.close()


def _owner(rng: Rng) -> str:
    return f"job {rng.uuid()}"


# -- which topics


async def _topics(options: TierOptions, plane: ControlPlane) -> tuple[list[TieredTopic], str]:
    """The topics to look at, with their settings, and the id of their cluster."""
    known = await plane.topics()
    names = {name for name, _ in known.values()}
    for name in options.topics:
        if name not in names:
            raise CommandFailed(f"there is no diskless topic {name} in this control plane")
    wanted = {topic_id: each for topic_id, each in known.items()
              if not options.topics or each[0] in options.topics}
    if options.bootstrap is None:
        assert options.cluster_id is not None
        return [_topic(options, topic_id, *each, {}) for topic_id, each in wanted.items()
                ], options.cluster_id
    with connect(options.bootstrap) as cluster:
        own = {name: _settings(cluster, name) for name, _ in wanted.values()}
        own_id = describe_cluster(cluster).cluster_id
    await belong(plane, own_id)  # runs of another cluster's topics must not be moved
    found = [_topic(options, topic_id, *each, own[each[0]]) for topic_id, each in wanted.items()
             if own[each[0]].get("remote.storage.enable") == "true"]
    without = set(options.topics) - {topic.topic for topic in found}
    if without:
        raise CommandFailed(f"topic {min(without)} has no remote tier; set "
                            "remote.storage.enable=true to give it one")
    return [topic for topic in found if topic.local_retention_ms >= 0
            ], options.cluster_id or own_id


def _settings(cluster: Cluster, name: str) -> dict[str, str]:
    return {key: each.value for key, each in topic_settings(cluster, name).items()
            if each.value is not None}


def _topic(
    options: TierOptions, topic_id: UUID, name: str, partitions: int, own: dict[str, str]
) -> TieredTopic:
    age_ms = options.local_retention_ms
    if age_ms is None:
        age_ms = local_retention(int(own["local.retention.ms"]), int(own["retention.ms"]))
    size, pause_ms = options.segment_size, options.segment_ms
    return TieredTopic(
        topic_id, name, partitions, age_ms,
        int(own.get("segment.bytes", SEGMENT_SIZE_MAX)) if size is None else size,
        int(own.get("segment.ms", 0)) if pause_ms is None else pause_ms)


# -- for people


def _show(report: JobReport, *, as_json: bool) -> None:
    if as_json:
        print_json({"segments": report.segments, "taken_over": report.taken_over,
                    "bytes": report.size, "partitions": report.logs,
                    "busy": [str(log) for log in report.busy], "errors": report.errors})
        return
    for error in report.errors:
        note(error)
    for log in report.busy:
        note(f"{log}: another job, or a broker, moves its records")
    taken = f", of which an earlier job had copied {report.taken_over}" if report.taken_over else ""
    note(f"{count(report.segments, 'segment')} of {human_size(report.size)} moved to the remote "
         f"tier{taken}; looked at {count(report.logs, 'partition')}")
