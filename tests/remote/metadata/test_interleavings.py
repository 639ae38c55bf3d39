"""Random histories of leaders that copy, fail, repeat, delete and replace each other.

On every backend, against a plain model: a dictionary of segments and the highest offsets.  What a
write that returned has stored is there; what a write whose outcome is unknown has stored is there
whole, or not at all.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from quipu.remote.metadata.errors import (
    BackendUnavailable,
    FencedLeader,
    InvalidTransition,
    OutcomeUnknown,
    RemoteResourceNotFound,
)
from quipu.remote.metadata.leading import LeaderPartition
from quipu.remote.metadata.manager import StoredRemoteLogMetadata
from quipu.remote.metadata.segment_metadata import RemoteLogSegmentMetadata
from quipu.remote.metadata.states import (
    COPY_FINISHED,
    COPY_STARTED,
    DELETE_FINISHED,
    DELETE_STARTED,
    PARTITION_FINISHED,
    PARTITION_MARKED,
    PARTITION_STARTED,
    SEGMENT_NEXT,
    RemoteLogSegmentState,
)
from quipu.remote.metadata.storage.keys import PathKeyFactory
from tests.contract.metadata_backend.backends import BackendUnderTest
from tests.remote.metadata.segments import deletion, fresh_partition, segment, update
from tests.remote.metadata.world import failing, manager_of

EXAMPLES = {"memory": 40, "simple": 15, "sqlite": 8, "postgres": 8, "topic": 3}
FAULTS = st.sampled_from(["", "", "", "", "refuse", "lose", "cut", "late"])
EPOCHS = (0, 1, 2)
OFFSET_MAX = 80


class Model:
    """What must be stored."""

    def __init__(self) -> None:
        self.segments: dict[UUID, RemoteLogSegmentMetadata] = {}
        self.highest: dict[int, int] = {}

    def put(self, after: RemoteLogSegmentMetadata) -> None:
        before = self.segments.get(after.segment_id.id)
        if after.state is DELETE_FINISHED:
            self.segments.pop(after.segment_id.id, None)
        else:
            self.segments[after.segment_id.id] = after
        if after.state is COPY_FINISHED and (before is None or before.state is COPY_STARTED):
            for epoch, start, end in after.epoch_ranges():
                if start <= end:
                    self.highest[epoch] = max(end, self.highest.get(epoch, -1))


class Interleavings(RuleBasedStateMachine):
    under_test: BackendUnderTest

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.partition = fresh_partition()
        self.model = Model()
        self.leader_epoch = 0
        self.inner = self.run(self._open())
        self.store = failing(self.inner)
        self.follower = self.run(manager_of(self.store, 99))
        self.run(self.follower.on_partition_leadership_changes({}, [self.partition]))
        self.leader = self.run(manager_of(self.store, 0))
        self.deposed: list[StoredRemoteLogMetadata] = []
        self.elect("")

    async def _open(self) -> Any:
        return self.under_test.open()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    # --- events

    def elect(self, fault: str) -> None:
        self.store.faults = [fault]
        self.leader_epoch += 1
        self.run(self.leader.on_partition_leadership_changes(
            {self.partition: self.leader_epoch}, []))
        self.store.faults = []

    @rule(fault=FAULTS)
    def take_over(self, fault: str) -> None:
        """Another broker is elected; the former leader does not know yet."""
        self.deposed = [*self.deposed[-1:], self.leader]
        self.leader = self.run(manager_of(self.store, self.leader_epoch + 1))
        self.elect(fault)

    @rule(fault=FAULTS)
    def restart(self, fault: str) -> None:
        """The leader is restarted, and is elected again."""
        self.leader = self.run(manager_of(self.store, self.leader_epoch))
        self.elect(fault)

    @rule()
    def late_writes_arrive(self) -> None:
        self.run(self.store.deliver_late())

    @rule(start=st.integers(0, 60), length=st.integers(0, 19), split=st.integers(0, 19),
          epoch=st.sampled_from(EPOCHS[:2]), fault=FAULTS)
    def begin(self, start: int, length: int, split: int, epoch: int, fault: str) -> None:
        """A copy begins, of records of one leader epoch, or of two."""
        epochs = {epoch: start, epoch + 1: start + split} if 0 < split <= length else {epoch: start}
        added = segment(self.partition, start, start + length, epochs)
        self.write(self.leader.add_remote_log_segment_metadata(added), added, fault)

    @rule(number=st.integers(0, 1000), state=st.sampled_from(
        [COPY_FINISHED, COPY_FINISHED, COPY_FINISHED, DELETE_STARTED, DELETE_FINISHED]),
        fault=FAULTS)
    def change(self, number: int, state: RemoteLogSegmentState, fault: str) -> None:
        """A segment's state changes, is repeated, or is not allowed to change."""
        if not self.model.segments:
            return
        known = sorted(self.model.segments)
        before = self.model.segments[known[number % len(known)]]
        writing = self.leader.update_remote_log_segment_metadata(update(before, state))
        if before.state is not state and state not in SEGMENT_NEXT[before.state]:
            with pytest.raises(InvalidTransition):
                self.run(writing)
            return
        self.write(writing, before.with_update(update(before, state)), fault)

    def write(
        self, writing: Coroutine[Any, Any, None], after: RemoteLogSegmentMetadata, fault: str
    ) -> None:
        assert self.store.faults == []
        self.run(self.leader.remote_log_size(self.partition, 0))  # loads, if it must
        self.store.faults = [fault]
        try:
            self.run(writing)
        except OutcomeUnknown:
            assert fault in ("lose", "cut", "late")
            if fault == "cut":
                self.model.put(after)
        except BackendUnavailable:
            assert fault == "refuse"
        else:
            assert fault == ""
            self.model.put(after)
        self.store.faults = []

    @rule(start=st.integers(0, 60))
    def a_deposed_leader_writes(self, start: int) -> None:
        """R11: remote.W3: it is refused, whatever it believes."""
        for manager in self.deposed:
            with pytest.raises(FencedLeader):
                self.run(manager.add_remote_log_segment_metadata(
                    segment(self.partition, start, start + 5)))

    # --- what always holds

    @invariant()
    def all_readers_agree_with_the_model(self) -> None:
        self.run(self._check())

    async def _check(self) -> None:
        partition = self.partition
        for manager in (self.leader, self.follower):
            listed = {each.segment_id.id: each
                      for each in await manager.list_remote_log_segments(partition)}
            assert listed == self.model.segments
            for epoch in EPOCHS:
                ours = sorted((each for each in self.model.segments.values()
                               if epoch in each.segment_leader_epochs), key=lambda each: each.order)
                assert await manager.list_remote_log_segments(partition, epoch) == ours
                assert await manager.highest_offset_for_epoch(partition, epoch) == (
                    self.model.highest.get(epoch))
                assert await manager.remote_log_size(partition, epoch) == sum(
                    each.segment_size_bytes for each in ours)
        for epoch in EPOCHS:
            for offset in range(0, OFFSET_MAX, 7):
                found = await self.leader.remote_log_segment_metadata(partition, epoch, offset)
                assert found == await self.follower.remote_log_segment_metadata(
                    partition, epoch, offset)
                if found is not None:
                    assert found == self.model.segments[found.segment_id.id]
                    assert found.state is COPY_FINISHED
                    assert any(each.epoch == epoch and each.start <= offset <= each.end
                               for each in found.epoch_ranges())
        led = self.leader._partitions[partition]
        assert isinstance(led, LeaderPartition)
        led.invariants()

    def teardown(self) -> None:
        """R12: at the end the partition is deleted, with an interruption; no key is left."""
        try:
            self.run(self._delete())
        finally:
            self.run(self.inner.close())
            self.runner.close()

    async def _delete(self) -> None:
        await self.store.deliver_late()
        for state in (PARTITION_MARKED, PARTITION_STARTED, PARTITION_FINISHED):
            self.store.faults = ["", "lose"] if state is PARTITION_FINISHED else []
            try:
                await self.leader.put_remote_partition_delete_metadata(
                    deletion(self.partition, state))
            except OutcomeUnknown:
                self.leader = await manager_of(self.store, 0)
                await self.leader.on_partition_leadership_changes(
                    {self.partition: self.leader_epoch + 1}, [])
        with pytest.raises(RemoteResourceNotFound):
            await self.leader.list_remote_log_segments(self.partition)
        left = await self.inner.get_like(PathKeyFactory().partition_key(self.partition))
        assert left == []


def test_any_interleaving_agrees_with_the_model(
    under_test: BackendUnderTest, request: pytest.FixtureRequest
) -> None:
    """R1, R2, R3, R6, R11, R12: remote.L1, remote.F1, remote.C1, remote.B1: on every backend."""
    name = request.node.callspec.params["under_test"]
    machine = type("Machine", (Interleavings,), {"under_test": under_test})
    run_state_machine_as_test(machine, settings=settings(
        max_examples=EXAMPLES[name], stateful_step_count=20))
