"""The cleaner of one node: which logs it compacts, and what it does when a pass fails."""

import asyncio
from pathlib import Path

import pytest

from quipu.broker.partitions import cleaning
from quipu.broker.partitions.cleaning import Cleaner
from quipu.model.errors import QuipuError
from quipu.model.ids import Epoch, Offset
from quipu.runtime.disks.disk import RealDisk
from quipu.storage.log import Log
from quipu.wire.record_batch import Record, decode_records, encode_batch, parse_header
from tests.harness.here import NodeHere
from tests.looped import looped
from tests.storage.builders import NOW_MS, split


def fill(log: Log) -> None:
    for number in range(400):
        batch = memoryview(encode_batch([
            Record(b"k%d" % (number % 7), b"x" * 200, timestamp=NOW_MS)]))
        log.append(batch, parse_header(batch), epoch=Epoch(max(0, log.leader_epoch)),
                   now_ms=NOW_MS)
    log.flusher.flush_now()


def cleaner_of(here: NodeHere) -> Cleaner:
    node = here.node
    return Cleaner(node.broker.partitions, lambda: node.settings, RealDisk(), node._clock,
                   node._rng, stats=node.stats)


def count(log: Log) -> int:
    batches = split(log.read(Offset(0), 1 << 24, end=log.end_offset, min_one=True))
    return sum(len(list(decode_records(batch, size_max=1 << 20))) for batch in batches)


@looped
async def test_compacted_topics_are_compacted_in_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K5: broker.partitions.K1, broker.partitions.K2, broker.partitions.K4: only topics that say
    so, only replicas that serve, and none with snapshots; the work is done by a child.
    """
    children = []
    run_child = cleaning.run_child

    async def noted(module: str, *args: object) -> None:
        children.append(module)
        await run_child(module, *args)  # type: ignore[arg-type]
    monkeypatch.setattr(cleaning, "run_child", noted)
    async with NodeHere(tmp_path, log_cleaner_enable="false", log_segment_bytes="16384") as here:
        logs = {}
        for name, policy in (("c", "compact"), ("both", "compact,delete"), ("d", "delete"),
                             ("own", "compact"), ("idle", "compact")):
            await here.create(name, cleanup_policy=policy, retention_ms="-1")
            partition = here.node.broker.partitions._by_name[name, 0]
            logs[name] = partition.log
            if name != "idle":
                fill(partition.log)
            partition.is_serving = partition.is_serving and name != "idle"
        monkeypatch.setattr(cleaning, "KEPT_BY_SNAPSHOTS", frozenset({"own"}))
        cleaner = cleaner_of(here)
        while await cleaner.clean_one():
            pass
        kept = {name: count(log) for name, log in logs.items() if name != "idle"}
        assert kept["d"] == kept["own"] == 400
        assert kept["c"] < 100
        assert kept["both"] < 100
        assert len(children) >= 2
        assert here.node.stats.cleaner_passes == len(children)
        assert here.node.stats.uncleanable_partitions == 0


@looped
async def test_a_log_whose_pass_fails_delays_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K5: broker.partitions.K3: it is counted, and left alone for a while."""
    async with NodeHere(tmp_path, log_cleaner_enable="false", log_segment_bytes="16384") as here:
        for name in ("bad", "good"):
            await here.create(name, cleanup_policy="compact")
        logs = {name: here.node.broker.partitions._by_name[name, 0].log for name in ("bad", "good")}
        for log in logs.values():
            fill(log)
        run = cleaning.run_in_child

        async def fails_once(*args: object) -> None:
            if args[0].path == logs["bad"].directory.path:  # type: ignore[attr-defined]
                raise QuipuError("the child was killed")
            await run(*args)  # type: ignore[arg-type]
        monkeypatch.setattr(cleaning, "run_in_child", fails_once)
        cleaner = cleaner_of(here)
        while await cleaner.clean_one():
            await asyncio.sleep(0)
        assert count(logs["bad"]) == 400
        assert count(logs["good"]) < 100
        assert here.node.stats.uncleanable_partitions == 1
        assert here.node.stats.cleaner_failures == 1
