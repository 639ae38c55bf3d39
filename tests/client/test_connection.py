"""One connection: versions, sizes, times, and brokers that break the protocol."""

import time

import pytest

from quipu.client.connection import BrokerConnection
from quipu.client.errors import ConnectionFailed, NotKafka, NotServed, ResponseTooLate
from quipu.client.settings import client_settings
from quipu.model.settings_types import Address
from quipu.wire.messages.k03_metadata import MetadataRequest, MetadataResponse
from tests.client.fake_kafka import FakeKafka

ASK = MetadataRequest(topics=[])


def connect(fake: FakeKafka, **settings: str) -> BrokerConnection:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return BrokerConnection(Address("localhost", fake.port), client_settings(given))


@pytest.mark.parametrize(("served", "expected"), [
    ((0, 13), 13), ((0, 99), 13), ((0, 0), 0), ((3, 7), 7),
])
def test_the_newest_version_that_both_know(served: tuple[int, int], expected: int) -> None:
    """I18, client.N1: brokers of any age are asked in versions that they know."""
    with FakeKafka(versions={18: (0, 0 if expected == 0 else 3), 3: served}) as fake:
        fake.answers[3] = lambda _request, _version: MetadataResponse()
        connection = connect(fake)
        assert connection.ask(ASK, MetadataResponse) == MetadataResponse()
        assert fake.asked[-1] == (ASK, expected)
        assert connection.version(MetadataRequest, highest=5) == min(5, expected)
        connection.close()


@pytest.mark.parametrize("served", [{}, {3: (14, 20)}])
def test_no_version_in_common(served: dict[int, tuple[int, int]]) -> None:
    with FakeKafka(versions={18: (0, 3), **served}) as fake:
        connection = connect(fake)
        with pytest.raises(NotServed, match="this client knows 0 to 13"):
            connection.ask(ASK, MetadataResponse)
        connection.close()


def test_several_requests_under_way() -> None:
    with FakeKafka() as fake:
        answers = iter(range(3))
        fake.answers[3] = lambda _request, _version: MetadataResponse(controller_id=next(answers))
        connection = connect(fake)
        for _ in range(3):
            connection.send(ASK)
        assert not connection.is_quiet
        assert [connection.receive().controller_id for _ in range(3)] == [0, 1, 2]
        assert connection.is_quiet
        connection.close()


@pytest.mark.parametrize("said", [b"", b"\0", b"\xff" * 100])
def test_an_answer_that_is_none(said: bytes) -> None:
    """client.N3: the connection is closed, and says so afterwards."""
    with FakeKafka() as fake:
        fake.answers[3] = lambda _request, _version: said
        connection = connect(fake)
        with pytest.raises(NotKafka):
            connection.ask(ASK, MetadataResponse)
        with pytest.raises(ConnectionFailed, match="is closed"):
            connection.ask(ASK, MetadataResponse)


def test_a_response_that_claims_too_much_takes_no_memory() -> None:
    """client.N2: it is refused by its size, before it is read."""
    with FakeKafka() as fake:
        fake.answers[3] = lambda _request, _version: bytes(5_000_000)
        connection = connect(fake)
        connection._size_max = 1_000_000
        with pytest.raises(NotKafka, match="a response of 5000004 bytes"):
            connection.ask(ASK, MetadataResponse)


def test_no_answer_and_no_broker() -> None:
    with FakeKafka() as fake:
        fake.answers[3] = lambda _request, _version: time.sleep(3) or MetadataResponse()
        connection = connect(fake, request_timeout_ms="100")
        with pytest.raises(ResponseTooLate, match="no response in time"):
            connection.ask(ASK, MetadataResponse)
        fake.answers[3] = lambda _request, _version: None
        with pytest.raises(ConnectionFailed, match="closed the connection"):
            connect(fake).ask(ASK, MetadataResponse)
        fake.answers[18] = lambda _request, _version: b"HTTP/1.1 400"
        with pytest.raises(NotKafka, match="does not respond as a Kafka broker"):
            connect(fake)
        port = fake.port
    with pytest.raises(ConnectionFailed, match="refused"):
        BrokerConnection(Address("localhost", port), client_settings({}))
