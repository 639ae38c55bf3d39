"""The walks that ARCHITECTURE.md draws are the ways that the code takes.

A walk is a numbered list of files.  Each scenario does what the walk is about in this process and
notes which files of `src/quipu` are entered, call by call; the list must come by in that order.
"""

import asyncio
import re
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from quipu.client.shared import shared
from quipu.model.ids import TopicPartition
from quipu.pipeline.execution.pruning import PrunedSource, read_options
from quipu.pipeline.live_facts import LiveFacts
from quipu.pipeline.plan.sources import plan_source
from quipu.pipeline.reading.positions import Reached
from quipu.pipeline.reading.stream import beginning
from quipu.pipeline.sql.parser import parse_one
from quipu.pipeline.sql.statements import CreateSource
from quipu.pipeline.views.batch_commit import BatchCommit
from quipu.pipeline.views.inputs import plan_tasks, warn_recreated
from quipu.pipeline.views.merge_task import read_and_merge
from quipu.pipeline.views.view_files import ViewFiles
from quipu.wire.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from quipu.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from quipu.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from quipu.wire.record_batch import Record, encode_batch
from quipu.wire.schema import Request, Response
from tests.broker.diskless.parts import create as create_diskless
from tests.broker.diskless.parts import diskless_node
from tests.broker.replication.rig import Rig
from tests.broker.tiering.test_tiering import fetched, filled, tiered_node, values
from tests.harness.here import NodeHere
from tests.harness.raw import RawConnection

REPOSITORY = Path(__file__).resolve().parents[1]
SOURCE = str(REPOSITORY / "src" / "quipu") + "/"
HEADING = re.compile(r"^### (?P<title>.+)$")
LINE = re.compile(r"^\d+\. `(?P<path>[\w/]+\.py)`")
VISITS_MAX = 2  # of one file in one walk


def walks(text: str) -> dict[str, list[str]]:
    """The numbered lists of files below headings of the third level, by their titles."""
    found: dict[str, list[str]] = {}
    title = ""
    for line in text.splitlines():
        if heading := HEADING.match(line):
            title = heading["title"]
        elif step := LINE.match(line):
            found.setdefault(title, []).append(step["path"])
    return found


WALKS = walks((REPOSITORY / "ARCHITECTURE.md").read_text())


@contextmanager
def followed() -> Iterator[list[str]]:
    """Note the files that this thread enters, one after the other."""
    entered: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            path = frame.f_code.co_filename
            if path.startswith(SOURCE) and (not entered or entered[-1] != path):
                entered.append(path)

    sys.setprofile(note)
    try:
        yield entered
    finally:
        sys.setprofile(None)
        entered[:] = [path.removeprefix(SOURCE) for path in entered]


def first_missing(walk: list[str], entered: list[str]) -> str | None:
    """The first file of `walk` that is not entered after those before it."""
    position = 0
    for path in walk:
        try:
            position = entered.index(path, position) + 1
        except ValueError:
            return path
    return None


async def asked(node: NodeHere, request: Request, version: int) -> tuple[Response, list[str]]:
    """Ask a node from another thread, twice; the files that the second request enters.

    The first one opens files and compiles messages.
    """
    loop = asyncio.get_running_loop()
    with RawConnection(*node.address) as connection:
        await loop.run_in_executor(None, connection.ask, request, version)
        with followed() as entered:
            response = await loop.run_in_executor(None, connection.ask, request, version)
    return response, entered


def produce_request() -> ProduceRequest:
    batch = bytes(encode_batch([Record(b"k", b"v", (), 1)]))
    return ProduceRequest(acks=1, timeout=1000, topic_data=[TopicProduceData(
        name="t", partition_data=[PartitionProduceData(index=0, records=batch)])])


def fetch_request() -> FetchRequest:
    return FetchRequest(
        replica_id=-1, max_wait=1000, min_bytes=1, max_bytes=1 << 20, session_epoch=-1,
        topics=[FetchTopic(topic="t", partitions=[
            FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)])])


async def produce(path: Path) -> list[str]:
    async with NodeHere(path) as node:
        await node.create("t")
        response, entered = await asked(node, produce_request(), 9)
        (topic,) = response.responses  # type: ignore[attr-defined]
        assert topic.partition_responses[0].base_offset == 1
    return entered


async def fetch(path: Path) -> list[str]:
    async with NodeHere(path) as node:
        await node.create("t")
        await asked(node, produce_request(), 9)
        response, entered = await asked(node, fetch_request(), 12)
        assert response.responses[0].partitions[0].records  # type: ignore[attr-defined]
    return entered


async def create_a_topic(path: Path) -> list[str]:
    async with NodeHere(path) as node:
        request = CreateTopicsRequest(timeout=5000, topics=[
            CreatableTopic(name="new", num_partitions=1, replication_factor=-1)])
        with RawConnection(*node.address) as connection, followed() as entered:
            response = await asyncio.get_running_loop().run_in_executor(
                None, connection.ask, request, 7)
        assert response.topics[0].error_code == 0  # type: ignore[attr-defined]
    return entered


async def send_down_a_chain(path: Path) -> list[str]:
    rig = Rig(path)
    head, _, tail = rig.nodes(3)
    rig.configure(serving=[1, 2, 3])
    await rig.settled()
    await head.produce(b"first")
    with followed() as entered:
        await head.produce(b"value")
    assert tail.values()[-1] == b"value"
    return entered


async def copy_and_read_a_segment(path: Path) -> list[str]:
    async with tiered_node(path) as node:
        with followed() as entered:
            await filled(node)
            code, found = await fetched(node, 0)
        assert (code, found[0]) == (0, values([0])[0])
    return entered


async def produce_diskless(path: Path) -> list[str]:
    async with diskless_node(path) as node:
        await create_diskless(node)
        response, entered = await asked(node, produce_request(), 9)
        (topic,) = response.responses  # type: ignore[attr-defined]
        assert topic.partition_responses[0].base_offset == 1
    return entered


async def send_into_a_view(path: Path) -> list[str]:
    """The batch of a view as `ViewStream.run_batch` makes it, without Spark."""
    async with NodeHere(path) as node:
        await node.create("t")
        await asked(node, produce_request(), 9)
        return await asyncio.get_running_loop().run_in_executor(
            None, run_batch, path / "view", f"{node.address.host}:{node.address.port}")


def run_batch(folder: Path, bootstrap: str) -> list[str]:
    statement = parse_one(text := (
        f"CREATE SOURCE s FROM KAFKA BROKER '{bootstrap}' TOPIC 't' KEY FORMAT TEXT "
        "VALUE FORMAT TEXT ENVELOPE UPSERT"))
    assert isinstance(statement, CreateSource)
    source = plan_source(statement, text, LiveFacts(), {})
    files = ViewFiles(folder, {"s": PrunedSource(source)}, result=None, buckets=1,
                      batch_offsets_max=100)
    options = read_options(source)
    client = shared(options.client)
    first = BatchCommit.first(files, [beginning(client, options, warn_recreated)])
    first.commit_tables([], lambda work: work())
    first.publish()
    reached = [Reached({TopicPartition("t", 0): 2}, first.positions[0].topic_ids)]
    with followed() as entered:
        batch = BatchCommit.begin(files, 0, lambda: reached)
        assert batch is not None
        tasks = plan_tasks(files.inputs, batch.base.positions, batch.positions, 1)
        rows = list(read_and_merge(files.inputs, tasks, batch.tables, batch.number))
        batch.commit_tables(rows, lambda work: work())
        batch.publish()
    assert files.latest().counts[0].messages == 2
    client.close()
    return entered


SCENARIOS: dict[str, Callable[[Path], Coroutine[Any, Any, list[str]]]] = {
    "A produce": produce,
    "A fetch": fetch,
    "The creation of a topic": create_a_topic,
    "A batch down a chain": send_down_a_chain,
    "A segment to the tier and back": copy_and_read_a_segment,
    "A produce to a diskless topic": produce_diskless,
    "A message into a view": send_into_a_view,
}
SPARK = "pipeline/spark/"  # runs in other processes; tests/pipeline/spark starts it


@pytest.mark.parametrize("title", SCENARIOS)
def test_a_walk_is_the_way_that_the_code_takes(title: str, tmp_path: Path) -> None:
    """In this order, whatever lies in between; no file is visited more than twice."""
    walk = WALKS[title]
    entered = asyncio.run(SCENARIOS[title](tmp_path))

    assert not [path for path in walk if not (REPOSITORY / "src/quipu" / path).is_file()]
    assert not [path for path in walk if walk.count(path) > VISITS_MAX]
    traced = [path for path in walk if not path.startswith(SPARK)]
    assert len(traced) >= len(walk) - 2
    assert first_missing(traced, entered) is None, entered


def test_every_walk_is_taken() -> None:
    assert WALKS.keys() == SCENARIOS.keys()


def test_a_wrong_walk_is_found() -> None:
    assert first_missing(["a", "b", "a"], ["a", "x", "b", "a"]) is None
    assert first_missing(["a", "b", "a"], ["a", "b"]) == "a"
    assert first_missing(["b", "a"], ["a", "b"]) == "a"


def test_what_is_to_be_read_exists() -> None:
    """The reading lists name files below src/quipu, or below the repository."""
    text = (REPOSITORY / "ARCHITECTURE.md").read_text()
    table = text[text.index("## Where to start reading"):text.index("## The house")]
    names = [name for line in table.splitlines() if line.startswith("| ") and "`" in line
             for name in re.findall(r"`([\w/.-]+)`", line.split(" | ", 1)[1])]

    assert len(names) > 30
    assert not [name for name in names if not (REPOSITORY / "src/quipu" / name).exists()
                and not (REPOSITORY / name).exists()]
