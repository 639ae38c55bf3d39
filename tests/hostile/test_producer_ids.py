"""Large numbers of producers, and producers that use the id of another one."""

from itertools import pairwise
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from quipu.model.errors import Code
from quipu.wire.frame import decode_response, encode_request
from quipu.wire.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from quipu.wire.messages.k22_init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from quipu.wire.record_batch import Record, encode_batch
from tests.harness.node import RunningNode
from tests.harness.raw import RawConnection
from tests.hostile.bystander import TOPIC, Bystander

VERSION = 9
LIMIT = 3000
AT_ONCE = 100  # requests on their way
VICTIM = 5


def request(producer: int, sequence: int, epoch: int = 0) -> ProduceRequest:
    batch = encode_batch([Record(None, b"%d" % sequence)], producer_id=producer,
                         producer_epoch=epoch, base_sequence=sequence)
    return ProduceRequest(acks=-1, timeout=10_000, topic_data=[TopicProduceData(
        name="t", partition_data=[PartitionProduceData(index=0, records=memoryview(batch))])])


def sent(
    connection: RawConnection, producer: int, sequence: int, epoch: int = 0
) -> tuple[int, int]:
    """Error code and offset of the response."""
    answer = connection.ask(request(producer, sequence, epoch), VERSION)
    assert isinstance(answer, ProduceResponse)
    part = answer.responses[0].partition_responses[0]
    return part.error_code, part.base_offset


def flood(connection: RawConnection, producers: range) -> list[int]:
    """Send one batch of each; return the error codes."""
    codes = []
    for start in range(producers.start, producers.stop, AT_ONCE):
        some = range(start, min(start + AT_ONCE, producers.stop))
        connection.send(b"".join(
            encode_request(request(number, 0), VERSION, correlation_id=number)
            for number in some))
        for _ in some:
            _, answer = decode_response(memoryview(connection.receive_frame()), 0, VERSION)
            assert isinstance(answer, ProduceResponse)
            codes.append(answer.responses[0].partition_responses[0].error_code)
    return codes


def test_a_crowd_of_producers_makes_nobody_forgotten(tmp_path: Path) -> None:
    """K2, K8: above the limit new producers are refused; known ones stay known, also after the node
    was killed.
    """
    settings = {"max.producer.ids.per.partition": str(LIMIT), "producer.id.retry.ms": "120000"}
    with RunningNode(tmp_path / "data", settings=settings) as node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        for topic in ("t", TOPIC):
            admin.create_topics([NewTopic(topic, num_partitions=1)])[topic].result(30)
        with Bystander(node) as bystander, RawConnection(node.host, node.port) as connection:
            first = sent(connection, VICTIM, 0)
            assert first == (0, 0)
            codes = flood(connection, range(1000, 1000 + LIMIT + 500))
            assert codes == [0] * (LIMIT - 1) + [Code.THROTTLING_QUOTA_EXCEEDED] * 501
            assert sent(connection, VICTIM, 0) == first
            assert sent(connection, VICTIM, 1) == (0, LIMIT)
        print(bystander.verdict())
        node.kill()
        node.start()
        with RawConnection(node.host, node.port) as connection:
            assert sent(connection, VICTIM, 0) == first
            assert sent(connection, VICTIM, 1) == (0, LIMIT)
            assert sent(connection, 7, 0)[0] == Code.THROTTLING_QUOTA_EXCEEDED


def test_twenty_thousand_producers_are_known_by_default(tmp_path: Path) -> None:
    """K2: as many as the default says, and one that came before them is known after them."""
    with RunningNode(tmp_path / "data") as node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        for topic in ("t", TOPIC):
            admin.create_topics([NewTopic(topic, num_partitions=1)])[topic].result(30)
        with Bystander(node) as bystander, RawConnection(node.host, node.port) as connection:
            assert sent(connection, VICTIM, 0) == (0, 0)
            assert set(flood(connection, range(1000, 13_000))) == {0}
            assert sent(connection, VICTIM, 0) == (0, 0)
        print(bystander.verdict())


def test_nobody_takes_over_a_producer_by_counting(tmp_path: Path) -> None:
    """K2: a higher epoch fences a producer, as in Kafka; but neither an id nor the number of ids
    makes the next one predictable.
    """
    with RunningNode(tmp_path / "data") as node:
        with RawConnection(node.host, node.port) as connection:
            ids = []
            for _ in range(50):
                answer = connection.ask(InitProducerIdRequest(
                    transactional_id=None, transaction_timeout=60_000), 3)
                assert isinstance(answer, InitProducerIdResponse)
                assert answer.error_code == Code.NONE
                ids.append(answer.producer_id)
        assert len(set(ids)) == len(ids)
        assert all(0 <= each < 1 << 63 for each in ids)
        steps = {after - before for before, after in pairwise(ids)}
        assert len(steps) == len(ids) - 1  # no two alike
        assert len({each & 0xFFFFFF for each in ids}) > 40
