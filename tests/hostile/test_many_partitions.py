"""Produce and Fetch of thousands of partitions in one request, and topics of thousands that go.

Others are served meanwhile, and each request does what it would do alone.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from quipu.model.errors import Code
from quipu.wire.frame import decode_response, encode_request
from quipu.wire.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from quipu.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from quipu.wire.messages.k19_create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from quipu.wire.messages.k20_delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from quipu.wire.record_batch import Record, decode_records, encode_batch, parse_header
from quipu.wire.schema import Request, Response
from tests.harness.loop_holds import holds, measured
from tests.harness.node import RunningNode
from tests.harness.raw import RawConnection
from tests.hostile.bystander import TOPIC, Bystander, undisturbed
from tests.hostile.conftest import MIB

pytestmark = pytest.mark.xdist_group("hostile-partitions")

WIDE = "wide"
PARTITIONS = 4_000
ANONYMOUS_MAX = 300 * MIB
PRODUCE_VERSION = 9
FETCH_VERSION = 12
HOLD_SECONDS_MAX = 0.05  # of the loop's processor time


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A node with a topic of many partitions, in each of which there is a record."""
    directory = tmp_path_factory.mktemp("many") / "data"
    with measured(RunningNode(directory, settings={"max.partitions": "20000"})) as node:
        create(node, TOPIC, 1)
        create(node, WIDE, PARTITIONS)
        produce(node, WIDE, range(PARTITIONS))
        yield node
        node.kill()
        node.start(timeout=120)
        with Bystander(node) as bystander:
            time.sleep(0.2)
        bystander.verdict()
        assert set(fetched(ask(node, fetch_request(range(PARTITIONS)), FETCH_VERSION))) == set(
            range(PARTITIONS))


def connect(node: RunningNode) -> RawConnection:
    return RawConnection(node.host, node.port, timeout=120)


def ask(node: RunningNode, request: Request, version: int) -> Response:
    with connect(node) as connection:
        return connection.ask(request, version)


def create(node: RunningNode, name: str, partitions: int) -> None:
    made = ask(node, CreateTopicsRequest(timeout=60_000, topics=[CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=-1)]), 7)
    assert isinstance(made, CreateTopicsResponse)
    assert [topic.error_code for topic in made.topics] == [0]


def delete_request(name: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(timeout=60_000, topics=[DeleteTopicState(name=name)],
                               topic_names=[name])


def produce_request(
    topic: str, partitions: range, value: bytes = b"x", acks: int = 1
) -> ProduceRequest:
    batch = memoryview(encode_batch([Record(None, value, (), int(time.time() * 1000))]))
    return ProduceRequest(acks=acks, timeout=30_000, topic_data=[TopicProduceData(
        name=topic, partition_data=[
            PartitionProduceData(index=index, records=batch) for index in partitions])])


def produced(answer: Response) -> dict[int, tuple[int, int]]:
    """Error code and offset by partition."""
    assert isinstance(answer, ProduceResponse)
    return {part.index: (part.error_code, part.base_offset)
            for topic in answer.responses for part in topic.partition_responses}


def produce(node: RunningNode, topic: str, partitions: range) -> dict[int, tuple[int, int]]:
    found = produced(ask(node, produce_request(topic, partitions), PRODUCE_VERSION))
    assert {code for code, _ in found.values()} == {0}
    return found


def fetch_request(
    partitions: range, offset: int = 0, *, topic: str = WIDE, wait_ms: int = 0,
    session: tuple[int, int] = (0, -1),
) -> FetchRequest:
    """`session` is its id, and the epoch of the request in it."""
    topics = [FetchTopic(topic=topic, partitions=[
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=MIB)
        for index in partitions])] if partitions else []
    return FetchRequest(
        replica_id=-1, max_wait=wait_ms, min_bytes=1, max_bytes=50 * MIB, session_id=session[0],
        session_epoch=session[1], topics=topics)


def fetched(answer: Response) -> dict[int, list[bytes]]:
    """Values of all records by partition, of those that have any."""
    assert isinstance(answer, FetchResponse)
    found: dict[int, list[bytes]] = {}
    for topic in answer.responses:
        for part in topic.partitions:
            data = memoryview(part.records or b"")
            while data:
                size = parse_header(data).size
                found.setdefault(part.partition_index, []).extend(
                    record.value or b"" for record in decode_records(data[:size], size_max=MIB))
                data = data[size:]
    return found


def test_produce_to_all(node: RunningNode) -> None:
    """K8: with any acks, other clients are served, and every partition gets a result."""
    everywhere = range(PARTITIONS)
    before = max(offset for _, offset in produce(node, WIDE, everywhere).values())
    for acks in (1, -1):
        frame = encode_request(
            produce_request(WIDE, everywhere, acks=acks), PRODUCE_VERSION, correlation_id=1)
        with connect(node) as connection:
            def once(frame: bytes = frame, connection: RawConnection = connection) -> None:
                nonlocal before
                before += 1
                connection.send(frame)
                answer = decode_response(
                    memoryview(connection.receive_frame()), 0, PRODUCE_VERSION)[1]
                assert produced(answer) == dict.fromkeys(everywhere, (0, before))

            told = undisturbed(node, once, anonymous_max=ANONYMOUS_MAX, seconds=3.0)
        print(f"produce, acks={acks}: {told}")


def test_first_batches_of_a_topic(node: RunningNode) -> None:
    """K8: each opens a log, which takes long; the loop is never held for all of them."""
    create(node, "fresh", PARTITIONS)
    seen = len(holds(node))
    with Bystander(node) as bystander:
        assert len(produce(node, "fresh", range(PARTITIONS))) == PARTITIONS
    print(f"{bystander.verdict()}; held {max(holds(node)[seen:]) * 1e3:.0f} ms")
    assert max(holds(node)[seen:]) < HOLD_SECONDS_MAX
    ask(node, delete_request("fresh"), 5)


def test_produce_to_nowhere(node: RunningNode) -> None:
    """K8: thousands of partitions that are not there are thousands of errors, in turns."""
    frame = encode_request(
        produce_request("nowhere", range(10_000)), PRODUCE_VERSION, correlation_id=1)
    with connect(node) as connection:
        def once() -> None:
            connection.send(frame)
            found = produced(decode_response(
                memoryview(connection.receive_frame()), 0, PRODUCE_VERSION)[1])
            assert found == dict.fromkeys(
                range(10_000), (Code.UNKNOWN_TOPIC_OR_PARTITION, -1))

        print(undisturbed(node, once, anonymous_max=ANONYMOUS_MAX, seconds=3.0))


def test_requests_of_a_connection_stay_in_order(node: RunningNode) -> None:
    """K2: broker.serving.L1; a small request after a large one is appended, and gets its response,
    after it.
    """
    partitions = range(1_000)
    before = produce(node, WIDE, partitions)
    with connect(node) as connection:
        for number, width in enumerate((1_000, 1, 1_000, 2)):
            connection.send(encode_request(
                produce_request(WIDE, range(width), b"%d" % number), PRODUCE_VERSION,
                correlation_id=number))
        offsets = []
        for number in range(4):
            found_id, answer = decode_response(
                memoryview(connection.receive_frame()), 0, PRODUCE_VERSION)
            assert found_id == number
            offsets.append(produced(answer)[0][1])
    first = before[0][1] + 1
    assert offsets == [first, first + 1, first + 2, first + 3]
    found = fetched(ask(node, fetch_request(range(1), first), FETCH_VERSION))
    assert found[0][:4] == [b"0", b"1", b"2", b"3"]


def test_fetch_of_all(node: RunningNode) -> None:
    """K8: named one by one, without a session."""
    frame = encode_request(fetch_request(range(PARTITIONS)), FETCH_VERSION, correlation_id=1)
    with connect(node) as connection:
        def once() -> None:
            connection.send(frame)
            found = fetched(decode_response(
                memoryview(connection.receive_frame()), 1, FETCH_VERSION)[1])
            assert found.keys() == set(range(PARTITIONS))

        print(undisturbed(node, once, anonymous_max=ANONYMOUS_MAX, seconds=3.0))


def test_a_session_of_all(node: RunningNode) -> None:
    """K8: broker.serving.B2; each request of a session of thousands of partitions checks all of
    them, in turns; new records of one partition end its wait, and the response has only that one.
    """
    ends = produce(node, WIDE, range(PARTITIONS))
    with connect(node) as connection:
        opened = connection.ask(FetchRequest(
            replica_id=-1, max_wait=0, min_bytes=1, max_bytes=50 * MIB, session_id=0,
            session_epoch=0, topics=[FetchTopic(topic=WIDE, partitions=[
                FetchPartition(partition=index, fetch_offset=offset + 1, partition_max_bytes=MIB)
                for index, (_, offset) in ends.items()])]), FETCH_VERSION)
        assert isinstance(opened, FetchResponse)
        assert opened.session_id != 0
        epoch = 0

        def once() -> None:
            nonlocal epoch
            epoch += 1
            answer = connection.ask(fetch_request(
                range(0), session=(opened.session_id, epoch)), FETCH_VERSION)
            assert isinstance(answer, FetchResponse)
            assert (answer.error_code, answer.responses) == (0, [])

        print(undisturbed(node, once, anonymous_max=ANONYMOUS_MAX, seconds=3.0))
        for index in (7, PARTITIONS - 1):
            connection.send(encode_request(fetch_request(
                range(0), session=(opened.session_id, epoch + 1), wait_ms=60_000),
                FETCH_VERSION, correlation_id=1))
            epoch += 1
            time.sleep(0.2)
            produce(node, WIDE, range(index, index + 1))
            answer = decode_response(
                memoryview(connection.receive_frame()), 1, FETCH_VERSION)[1]
            assert fetched(answer) == {index: [b"x"]}
            connection.ask(fetch_request(  # it has been read
                range(index, index + 1), ends[index][1] + 2,
                session=(opened.session_id, epoch + 1)), FETCH_VERSION)
            epoch += 1


def test_what_comes_while_others_are_read_wakes_a_fetch(node: RunningNode) -> None:
    """K2: broker.serving.B1; a record that comes to any partition between a fetch's turns is not
    waited for.
    """
    ends = produce(node, WIDE, range(PARTITIONS))
    targets = [FetchPartition(partition=index, fetch_offset=offset + 1, partition_max_bytes=MIB)
               for index, (_, offset) in ends.items()]
    frame = encode_request(FetchRequest(
        replica_id=-1, max_wait=60_000, min_bytes=1, max_bytes=MIB, session_id=0,
        session_epoch=-1, topics=[FetchTopic(topic=WIDE, partitions=targets)]),
        FETCH_VERSION, correlation_id=1)
    with connect(node) as reader:
        reader.send(frame)
        produce(node, WIDE, range(1))  # most likely read already
        started = time.monotonic()
        answer = decode_response(memoryview(reader.receive_frame()), 1, FETCH_VERSION)[1]
        assert 0 in fetched(answer)
        assert time.monotonic() - started < 30


def test_clients_that_go(node: RunningNode) -> None:
    """K8: broker.serving.B3, broker.serving.L3; their batches are appended all the same, and
    nothing is read or kept for them.
    """
    before = produce(node, WIDE, range(PARTITIONS))
    wide = encode_request(produce_request(WIDE, range(PARTITIONS)), PRODUCE_VERSION,
                          correlation_id=1)
    waiting = encode_request(fetch_request(range(PARTITIONS), 1 << 40), FETCH_VERSION,
                             correlation_id=1)
    with Bystander(node) as bystander:
        for number in range(20):
            with connect(node) as connection:
                connection.send(wide if number == 10 else waiting)
    bystander.verdict()
    deadline = time.monotonic() + 60
    own = 0  # batches of this test in the last partition, to which the client that went comes last
    while True:
        own += 1
        now = produce(node, WIDE, range(PARTITIONS - 1, PARTITIONS))
        if now[PARTITIONS - 1][1] > before[PARTITIONS - 1][1] + own or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    everywhere = produce(node, WIDE, range(PARTITIONS))
    # One by the client that went, and one by this last request.
    assert {offset - before[index][1] for index, (_, offset) in everywhere.items()
            if index < PARTITIONS - 1} == {2}


def test_a_topic_that_goes_while_it_is_used(node: RunningNode) -> None:
    """K5, K8: broker.serving.L2; running requests return results for existing partitions, and
    errors for deleted ones.
    """
    create(node, "going", PARTITIONS)
    with Bystander(node) as bystander, connect(node) as writer, connect(node) as reader:
        reader.send(encode_request(
            fetch_request(range(PARTITIONS), topic="going", wait_ms=60_000), FETCH_VERSION,
            correlation_id=1))
        writer.send(encode_request(
            produce_request("going", range(PARTITIONS)), PRODUCE_VERSION, correlation_id=1))
        ask(node, delete_request("going"), 5)
        codes = {code for code, _ in produced(decode_response(
            memoryview(writer.receive_frame()), 0, PRODUCE_VERSION)[1]).values()}
        assert codes <= {0, Code.UNKNOWN_TOPIC_OR_PARTITION, Code.NOT_LEADER_OR_FOLLOWER}
        answer = decode_response(memoryview(reader.receive_frame()), 1, FETCH_VERSION)[1]
        assert isinstance(answer, FetchResponse)
        later = produced(ask(node, produce_request("going", range(200)), PRODUCE_VERSION))
        assert {code for code, _ in later.values()} == {Code.UNKNOWN_TOPIC_OR_PARTITION}
    print(bystander.verdict())
    assert "Traceback" not in node.log_text()


def test_a_topic_of_many_partitions_is_deleted_in_turns(node: RunningNode) -> None:
    """K5, K8: others are served meanwhile, and all of it is gone in the end."""
    create(node, "gone", PARTITIONS)
    produce(node, "gone", range(PARTITIONS))
    seen = len(holds(node))
    with Bystander(node) as bystander:
        answer = ask(node, delete_request("gone"), 5)
    assert isinstance(answer, DeleteTopicsResponse)
    assert [topic.error_code for topic in answer.responses] == [0]
    held = max(holds(node)[seen:], default=0.0)
    print(f"{bystander.verdict()}; held {held * 1e3:.0f} ms")
    assert held < HOLD_SECONDS_MAX
    deadline = time.monotonic() + 60  # files go in the background
    while directories(node, "gone") and time.monotonic() < deadline:
        time.sleep(0.1)
    assert directories(node, "gone") == []


def directories(node: RunningNode, topic: str) -> list[Path]:
    return list(node.directory.glob(f"{topic}-*"))


def test_a_kill_while_a_topic_is_deleted(tmp_path: Path) -> None:
    """K5, V13: the start removes the rest of it, and touches nothing else."""
    with RunningNode(tmp_path / "data", settings={"max.partitions": "20000"}) as node:
        for name, partitions in ((TOPIC, 1), ("gone", PARTITIONS), ("kept", 200)):
            create(node, name, partitions)
            produce(node, name, range(partitions))
        (node.directory / f"stranger-0.{'ab' * 16}").mkdir()
        with connect(node) as connection:
            connection.send(encode_request(delete_request("gone"), 5, correlation_id=1))
            deadline = time.monotonic() + 60
            while not any(node.directory.glob("gone-*.deleted")) and time.monotonic() < deadline:
                time.sleep(0.001)
            node.kill()
        left = [path for path in directories(node, "gone") if not path.name.endswith(".deleted")]
        print(f"{len(left)} of {PARTITIONS} logs were left")
        assert left, "it was deleted before it was killed"
        node.start(timeout=120)
        assert directories(node, "gone") == []
        assert len(directories(node, "kept")) == 200
        assert len(directories(node, "stranger")) == 1
        assert fetched(ask(node, fetch_request(range(200), topic="kept"), FETCH_VERSION)) == {
            index: [b"x"] for index in range(200)}
        create(node, "gone", 2)
        assert produce(node, "gone", range(2)) == {0: (0, 0), 1: (0, 0)}
        node.restart()
        assert produce(node, "gone", range(2)) == {0: (0, 1), 1: (0, 1)}
