"""Random histories of a control plane, for hypothesis: what happens, in words of small numbers.

`Twins` carries out each step on a control plane and on another one, compares what they return, and
checks from outside what every control plane guarantees.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple
from uuid import uuid4

from hypothesis import strategies as st

from quipu.diskless.control_plane.interface import (
    ControlPlane,
    FindRequest,
    Replacement,
    RetentionRule,
    TieringClaim,
)
from quipu.diskless.values import BatchCoordinates, BatchRun, LogBounds, LogKey, NewObject
from quipu.model.ids import NodeId, Offset
from tests.contract.control_plane.planes import NOW, UNKNOWN_TOPIC, all_runs, batch, stored

LOGS = 3
WRAP = 0x80000000


class Batch(NamedTuple):
    """A batch to commit: `step` moves the sequence away from the expected one (0: it is next)."""

    log: int
    records: int
    size: int
    age: int  # its timestamp, before or after the time of the history
    producer: int  # -1: none
    epoch_step: int
    step: int


class Step(NamedTuple):
    """One operation, with numbers that each operation reads as it needs."""

    kind: str
    log: int = 0
    a: int = 0
    b: int = 0
    batches: tuple[Batch, ...] = ()


_batches = st.builds(
    Batch, log=st.integers(0, LOGS), records=st.integers(1, 4), size=st.integers(1, 50),
    age=st.integers(-30, 30), producer=st.sampled_from((-1, -1, 1, 2)),
    epoch_step=st.sampled_from((0,) * 8 + (1, -1)),
    step=st.sampled_from((0,) * 8 + (-1, -2, -4, 1, 3)))
_commits = st.builds(Step, kind=st.just("commit"), log=st.just(0), a=st.integers(0, 2),
                     b=st.integers(1, 10), batches=st.lists(_batches, max_size=6).map(tuple))
_others = st.builds(
    Step, kind=st.sampled_from((
        "again", "find", "find_time", "find_max", "delete_records", "retain", "claim", "tiered",
        "advance", "aged", "rewrite", "forget", "expire", "delete_topic", "objects", "producers")),
    log=st.integers(0, LOGS), a=st.integers(-2, 60), b=st.integers(-2, 60), batches=st.just(()))
steps = st.lists(st.one_of(_commits, _commits, _others), min_size=1, max_size=30)


@dataclass
class Producer:
    """What a producer of the history has sent: epoch and sequences, as a client counts them."""

    epoch: int = 0
    next_sequence: int = WRAP - 9  # so that it wraps soon
    sent: list[tuple[int, int]] = field(default_factory=list)  # base sequence, count


class Twins:
    """The control plane under test, and the one that it must agree with."""

    def __init__(self, plane: ControlPlane, twin: ControlPlane) -> None:
        self.planes = (plane, twin)
        self.now = NOW
        self.prefix = uuid4().hex
        self.topics = [uuid4(), uuid4()]
        self.logs = [LogKey(self.topics[0], 0), LogKey(self.topics[0], 1),
                     LogKey(self.topics[1], 0), LogKey(UNKNOWN_TOPIC, 0)]
        self.objects: list[NewObject] = []
        self.producers: dict[tuple[int, int], Producer] = {}
        self.claims: dict[tuple[int, int], TieringClaim] = {}
        self.last: dict[LogKey, LogBounds] = {}

    async def begin(self) -> None:
        for count, topic_id in zip((2, 1), self.topics, strict=True):
            for plane in self.planes:
                await plane.create_logs(topic_id, "topic", count)

    async def both(self, call: Callable[[ControlPlane], Any]) -> Any:
        """What both return; the order of sets and the types of sequences do not matter."""
        one, other = [_plain(await call(plane)) for plane in self.planes]
        assert one == other
        return one

    async def run(self, step: Step) -> None:
        self.now += 1 + step.b % 3
        await getattr(self, f"_{step.kind}")(step, self.logs[step.log])

    async def check(self) -> None:
        """diskless.C4, diskless.C5, diskless.C6, of the plane under test alone."""
        plane = self.planes[0]
        read: dict[str, list[BatchRun]] = {}
        for log, bounds in zip(self.logs, await plane.bounds(self.logs), strict=True):
            if bounds is None:
                continue
            before = self.last.get(log, LogBounds(Offset(0), Offset(0), Offset(0), 0))
            assert all(now >= then for now, then in zip(bounds[:3], before[:3], strict=True))
            self.last[log] = bounds
            for run in await all_runs(plane, log):
                read.setdefault(run.key, []).append(run)
        for state in await self._own_objects(plane):
            runs = read.pop(state.key, [])
            assert (state.run_count, state.live_size) == (len(runs), sum(run.size for run in runs))
            assert (state.marked_ms is None) == bool(runs)
            runs.sort(key=lambda run: run.position)
            assert list(await plane.object_runs(state.key)) == runs
        assert not read

    async def _own_objects(self, plane: ControlPlane) -> Any:
        found = await plane.objects(after=self.prefix)
        return [each for each in found if each.key.startswith(self.prefix)]

    # -- steps

    async def _commit(self, step: Step, _: LogKey) -> None:
        key = f"{self.prefix}-{len(self.objects):04d}"
        new = stored(*map(self._made, step.batches), key=key, gap=step.a // 2)
        self.objects.append(new)
        await self.both(lambda plane: plane.commit(new, self.now))

    def _made(self, wanted: Batch) -> BatchCoordinates:
        producer = (-1, -1, -1)
        if wanted.producer >= 0:
            sender = self.producers.setdefault((wanted.log, wanted.producer), Producer())
            if wanted.epoch_step > 0:
                sender.epoch, sender.next_sequence = sender.epoch + 1, 0
                sender.sent.clear()
            base, count = (sender.next_sequence + max(wanted.step, 0)) % WRAP, wanted.records
            if wanted.step < 0 and len(sender.sent) >= -wanted.step:
                base, count = sender.sent[wanted.step]  # again
            else:
                sender.next_sequence = (base + count) % WRAP
                sender.sent.append((base, count))
            producer = (wanted.producer, sender.epoch + min(wanted.epoch_step, 0), base)
            wanted = wanted._replace(records=count)
        return batch(self.logs[wanted.log], wanted.records, size=wanted.size,
                     timestamp=self.now + wanted.age, producer=producer)

    async def _again(self, step: Step, _: LogKey) -> None:
        if self.objects:
            new = self.objects[step.a % len(self.objects)]
            known = await self.planes[0].known_objects([new.key])
            if known:  # one that was forgotten is deleted, and nobody commits it
                await self.both(lambda plane: plane.commit(new, self.now))

    async def _find(self, step: Step, log: LogKey) -> None:
        requests = [FindRequest(log, Offset(step.a), step.b * 2),
                    FindRequest(self.logs[0], Offset(step.b), 10)]
        await self.both(lambda plane: plane.find(requests, runs_max=1 + step.b % 4))

    async def _find_time(self, step: Step, log: LogKey) -> None:
        start = max(0, step.a - 30)
        for timestamp in range(self.now - 40, self.now + 40, 7):
            await self.both(partial(_find_timestamp, log, timestamp, 0))
            await self.both(partial(_find_timestamp, log, timestamp, start))

    async def _find_max(self, step: Step, log: LogKey) -> None:
        await self.both(lambda plane: plane.find_max_timestamp(
            log, from_offset=max(0, step.a - 30)))

    async def _delete_records(self, step: Step, log: LogKey) -> None:
        await self.both(lambda plane: plane.delete_records(log, Offset(step.a), self.now))

    async def _retain(self, step: Step, log: LogKey) -> None:
        rules = [RetentionRule(log, step.a, step.b * 5), RetentionRule(self.logs[1], -1, step.a)]
        await self.both(lambda plane: plane.retain(
            rules, self.now, runs_max=1 + abs(step.a) % 4))

    async def _claim(self, step: Step, log: LogKey) -> None:
        owner = step.a % 2
        claim = await self.both(lambda plane: plane.claim_tiering(
            log, f"owner-{owner}", self.now, step.b))
        if claim is not None:
            self.claims[step.log, owner] = claim

    async def _tiered(self, step: Step, _: LogKey) -> None:
        claim = self.claims.get((step.log, step.b % 2))
        if claim is not None:
            await self.both(lambda plane: plane.note_tiered(claim, Offset(step.a), self.now))

    async def _advance(self, step: Step, log: LogKey) -> None:
        await self.both(lambda plane: plane.advance_log_start(log, Offset(step.a), self.now))

    async def _aged(self, step: Step, log: LogKey) -> None:
        await self.both(lambda plane: plane.aged_runs(
            log, self.now - step.a, limit=1 + abs(step.b) % 5))

    async def _rewrite(self, step: Step, log: LogKey) -> None:
        found = await self.planes[0].find([FindRequest(log, Offset(step.a), step.b)])
        runs = list(found[0].runs)
        if step.b % 5 == 0 and runs:
            runs[0] = runs[0]._replace(position=runs[0].position + 1)  # it has moved meanwhile
        key, position, moved = f"{self.prefix}-{len(self.objects):04d}-r", 3, []
        for run in runs:
            moved.append(Replacement(run, key, position))
            position += run.size
        new = NewObject(key, NodeId(2), position + 7, [])
        if await self.both(lambda plane: plane.rewrite(new, moved, self.now)):
            assert await self.both(lambda plane: plane.rewrite(new, moved, self.now))

    async def _forget(self, step: Step, _: LogKey) -> None:
        keys = [each.key for each in self.objects[step.a % 5::3]]
        await self.both(lambda plane: plane.forget_objects(keys))

    async def _expire(self, step: Step, log: LogKey) -> None:
        for plane in self.planes:  # of the whole store, which others may use: not compared
            await plane.expire_producers(self.now - abs(step.a), 1000)
        await self.both(lambda plane: plane.producers(log))

    async def _delete_topic(self, step: Step, log: LogKey) -> None:
        if step.a % 4 == 0:  # seldom
            await self.both(lambda plane: plane.delete_topic(log.topic_id, self.now))
            await self.both(lambda plane: plane.create_logs(log.topic_id, "topic", 1))

    async def _producers(self, _: Step, log: LogKey) -> None:
        await self.both(lambda plane: plane.producers(log))

    async def _objects(self, step: Step, _: LogKey) -> None:
        await self.both(self._own_objects)
        deletable = [set(await plane.deletable_objects(self.now - step.a, 1000))
                     for plane in self.planes]
        assert len({frozenset(key for key in keys if key.startswith(self.prefix))
                    for keys in deletable}) == 1


def _find_timestamp(
    log: LogKey, timestamp: int, from_offset: int, plane: ControlPlane
) -> Awaitable[BatchRun | None]:
    return plane.find_timestamp(log, timestamp, from_offset=from_offset)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, (list, tuple)) and type(value) in (list, tuple) \
        else value
