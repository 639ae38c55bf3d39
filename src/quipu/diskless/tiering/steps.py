"""One log: what is old in it moves to the remote tier, step by step.

    claim       the control plane gives one owner the right to move records of a log
    catch up    what an earlier owner finished is noted; what it left half done is taken over if its
                object is whole, or deleted
    plan        aged runs -> segments (plan.py)
    register    COPY_SEGMENT_STARTED in the remote log metadata
    copy        the bytes (copying.py), here or anywhere else
    finish      COPY_SEGMENT_FINISHED, then the control plane forgets the runs

    step = await LogStep.claimed(services, log, topic)
    for each in await step.planned(rules, before_ms):
        await step.finish(each.plan, each.custom_metadata or await copy_segment(...))
    await step.end()

Whoever ends at any point leaves a state from which the next step goes on: each part finds out by
itself how far the last one came.

Invariants
    diskless.S1  the control plane is told that the tier has records only after their metadata says
                 COPY_SEGMENT_FINISHED, segment by segment in order: at every moment, every record
                 is found in one of the two
    diskless.S2  metadata is led in the epoch of the claim: what an owner does after it has lost its
                 claim is refused, by the metadata or by the control plane
    diskless.S3  a copy that was begun is finished or deleted; what is deleted has a segment id that
                 nobody uses again (diskless.T2)
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import Final, NamedTuple, Protocol

from quipu.diskless.control_plane.interface import (
    FIND_RUNS_MAX,
    ControlPlane,
    FindRequest,
    TieringClaim,
)
from quipu.diskless.tiering.copying import find_copy
from quipu.diskless.tiering.plan import SEGMENT_SIZE_MAX, PlanRules, SegmentPlan, plan_segments
from quipu.diskless.values import BatchRun, LogBounds, LogKey
from quipu.model.errors import ErrorKind, QuipuError
from quipu.model.ids import Offset
from quipu.remote.metadata.errors import RemoteResourceNotFound
from quipu.remote.metadata.interface import RemoteLogMetadataManager
from quipu.remote.metadata.segment_metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    TopicIdPartition,
)
from quipu.remote.metadata.states import (
    COPY_FINISHED,
    COPY_STARTED,
    DELETE_FINISHED,
    DELETE_STARTED,
    RemoteLogSegmentState,
)
from quipu.remote.segments.names import SegmentName
from quipu.remote.segments.remote_storage import RemoteSegment, RemoteStorage
from quipu.runtime.clock import Clock
from quipu.runtime.objects.store import ObjectStore

AGED_SIZE_MAX: Final = 4 * SEGMENT_SIZE_MAX  # bytes of runs that one plan looks at


class ClaimLost(QuipuError):
    """Another owner moves the records of the log by now."""

    kind = ErrorKind.RETRY


class MetadataLeading(Protocol):
    """Tells the metadata manager what this process leads."""

    async def lead(self, partition: TopicIdPartition, epoch: int) -> None:
        """Lead `partition` in `epoch`."""
        ...

    async def follow(self, partition: TopicIdPartition, *, though_leading: bool = False) -> None:
        """Follow `partition` again."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StepServices:
    """What the steps of a process share."""

    plane: ControlPlane
    metadata: RemoteLogMetadataManager
    leading: MetadataLeading
    storage: RemoteStorage
    store: ObjectStore | None  # of the segments; None: they are not objects
    clock: Clock
    broker_id: int  # who writes the metadata; -1: no broker
    owner: str  # of claims; never that of another process
    lease_ms: int


class PlannedSegment(NamedTuple):
    """A segment that is registered, and is to be copied."""

    plan: SegmentPlan
    custom_metadata: bytes | None = None  # of the copy, if an earlier owner has made it


class LogStep:
    """One log under one claim."""

    def __init__(self, services: StepServices, topic: str, claim: TieringClaim) -> None:
        self.claim = claim
        self.log = claim.log
        self.topic = topic
        self.partition = TopicIdPartition(claim.log.topic_id, claim.log.partition, topic)
        self._services = services
        self.finished: list[RemoteLogSegmentMetadata] = []  # in this step

    @classmethod
    async def claimed(cls, services: StepServices, log: LogKey, topic: str) -> "LogStep | None":
        """A step of `log`; None while another owner has it, or if there is no such log."""
        claim = await services.plane.claim_tiering(
            log, services.owner, services.clock.now_ms(), services.lease_ms)
        return None if claim is None else cls(services, topic, claim)

    async def renew(self) -> None:
        """Keep the claim for another lease; raises `ClaimLost`."""
        services = self._services
        claim = await services.plane.claim_tiering(
            self.log, services.owner, services.clock.now_ms(), services.lease_ms)
        if claim is None or claim.epoch != self.claim.epoch:
            raise self._lost()

    async def end(self) -> None:
        """Give up the claim: the next owner need not wait for the end of the lease."""
        services = self._services
        await services.leading.follow(self.partition, though_leading=True)
        await services.plane.claim_tiering(
            self.log, services.owner, services.clock.now_ms(), 0)

    async def lead(self) -> None:
        """Lead the log's metadata, in the epoch of the claim (diskless.S2)."""
        await self._services.leading.lead(self.partition, self.claim.epoch)

    # -- before the copies

    async def planned(self, rules: PlanRules, before_ms: int) -> list[PlannedSegment]:
        """Catch up, then register the segments to make of the runs from before a time."""
        services = self._services
        await self.lead()
        segments = await services.metadata.list_remote_log_segments(self.partition)
        bounds = await self._catch_up(segments)
        if bounds is None:
            return []
        (lineage,) = await services.plane.lineages([self.log])
        if lineage is None:
            return []
        plans = plan_segments(
            await aged_runs(services.plane, self.log, before_ms), rules, topic=self.topic,
            claim_epoch=self.claim.epoch, leader_epoch=lineage[-1][0])
        found = await self._taken_over(plans, segments)
        for each in found:
            if each.custom_metadata is None:
                await self._register(each.plan)
        return found

    async def _catch_up(
        self, segments: Iterable[RemoteLogSegmentMetadata]
    ) -> LogBounds | None:
        """Note what is finished (diskless.S1); returns where the log begins; None: it is gone."""
        (bounds,) = await self._services.plane.bounds([self.log])
        if bounds is None:
            return None
        reached = covered_end(segments, bounds)
        return bounds if reached == bounds.diskless_start_offset else await self._note(reached)

    async def _taken_over(
        self, plans: Sequence[SegmentPlan], segments: Iterable[RemoteLogSegmentMetadata]
    ) -> list[PlannedSegment]:
        """The plans, with what is there of them already; all else that was begun is deleted."""
        found = {plan.segment_id: PlannedSegment(plan) for plan in plans}
        by_offsets: dict[tuple[int, int], SegmentPlan] = {
            (plan.start_offset, plan.end_offset - 1): plan for plan in plans}
        for segment in segments:
            if segment.state is COPY_FINISHED:
                continue
            plan = by_offsets.get((segment.start_offset, segment.end_offset))
            if plan is not None and segment.state is COPY_STARTED:
                mine = plan._replace(segment_id=segment.segment_id.id)
                custom = await self._find_copy(mine)
                if custom is not None:
                    found[plan.segment_id] = PlannedSegment(mine, custom)
                    continue
                if segment.segment_id.id == plan.segment_id:
                    continue  # of this very claim: it is copied again, under the same id
            await self._delete(segment)  # diskless.S3
        return list(found.values())

    async def _find_copy(self, plan: SegmentPlan) -> bytes | None:
        store = self._services.store
        return None if store is None else await find_copy(store, plan)

    async def _register(self, plan: SegmentPlan) -> None:
        services = self._services
        await services.metadata.add_remote_log_segment_metadata(self._started(plan))

    def _started(self, plan: SegmentPlan) -> RemoteLogSegmentMetadata:
        services = self._services
        return RemoteLogSegmentMetadata(
            segment_id=RemoteLogSegmentId(self.partition, plan.segment_id),
            start_offset=plan.start_offset, end_offset=plan.end_offset - 1,
            max_timestamp_ms=max(-1, plan.max_timestamp), broker_id=services.broker_id,
            event_timestamp_ms=services.clock.now_ms(), segment_size_bytes=plan.size,
            segment_leader_epochs={plan.leader_epoch: plan.start_offset}, txn_index_empty=True)

    # -- after a copy

    async def finish(self, plan: SegmentPlan, custom_metadata: bytes) -> LogBounds:
        """The segment is stored: its records leave the control plane.  Called in order."""
        services = self._services
        update = RemoteLogSegmentMetadataUpdate(
            segment_id=RemoteLogSegmentId(self.partition, plan.segment_id),
            event_timestamp_ms=services.clock.now_ms(), state=COPY_FINISHED,
            broker_id=services.broker_id, custom_metadata=custom_metadata)
        await services.metadata.update_remote_log_segment_metadata(update)
        self.finished.append(self._started(plan).with_update(update))
        return await self._note(plan.end_offset)  # diskless.S1

    async def _note(self, end: Offset) -> LogBounds:
        services = self._services
        bounds = await services.plane.note_tiered(self.claim, end, services.clock.now_ms())
        if bounds is None:
            raise self._lost()  # diskless.S2
        return bounds

    async def _delete(self, segment: RemoteLogSegmentMetadata) -> None:
        """Delete a copy that was begun: its metadata says so first, and goes last."""
        if segment.state is not DELETE_STARTED:
            await self._update(segment, DELETE_STARTED)
        name = SegmentName(self.log.topic_id, self.log.partition, segment.start_offset,
                           segment.segment_id.id)
        await self._services.storage.delete_log_segment_data(
            RemoteSegment(name, segment.custom_metadata or b""))
        with suppress(RemoteResourceNotFound):  # it was finished already
            await self._update(segment, DELETE_FINISHED)

    async def _update(
        self, segment: RemoteLogSegmentMetadata, state: RemoteLogSegmentState
    ) -> None:
        services = self._services
        await services.metadata.update_remote_log_segment_metadata(RemoteLogSegmentMetadataUpdate(
            segment_id=segment.segment_id, event_timestamp_ms=services.clock.now_ms(), state=state,
            broker_id=services.broker_id, custom_metadata=segment.custom_metadata))

    def _lost(self) -> ClaimLost:
        return ClaimLost(f"{self.partition}: another owner moves its records to the remote tier")


def covered_end(segments: Iterable[RemoteLogSegmentMetadata], bounds: LogBounds) -> Offset:
    """The first offset from the diskless start on that no finished segment has."""
    reached = bounds.diskless_start_offset
    for segment in sorted(segments, key=lambda each: each.order):
        if segment.start_offset > reached:
            break
        end = Offset(segment.end_offset + 1)
        if segment.state is COPY_FINISHED and reached < end <= bounds.high_watermark:
            reached = end
    return reached


async def aged_runs(
    plane: ControlPlane, log: LogKey, before_ms: int, *, size_max: int = AGED_SIZE_MAX
) -> list[BatchRun]:
    """The oldest runs of a log, up to the first with a record that is not before a time.

    They are about `size_max` bytes at most.
    """
    page: Sequence[BatchRun] = await plane.aged_runs(log, before_ms)
    runs = list(page)
    size = sum(run.size for run in runs)
    while len(page) >= FIND_RUNS_MAX and size < size_max:
        (found,) = await plane.find([FindRequest(log, runs[-1].end_offset, size_max - size)])
        page = list(takewhile(lambda run: run.max_timestamp < before_ms, found.runs))
        runs += page
        size += sum(run.size for run in page)
    return runs


class OwnLeading:
    """Leads and follows on behalf of a process that is no broker; see `MetadataLeading`."""

    def __init__(self, metadata: RemoteLogMetadataManager) -> None:
        self._metadata = metadata

    async def lead(self, partition: TopicIdPartition, epoch: int) -> None:
        await self._metadata.on_partition_leadership_changes({partition: epoch}, ())

    async def follow(self, partition: TopicIdPartition, *, though_leading: bool = False) -> None:
        del though_leading
        await self._metadata.on_partition_leadership_changes({}, [partition])
