"""Messages of a source read, decoded in blocks, and taken out of their envelope."""

from typing import Any

import pytest

from quipu.pipeline.envelopes.dead_letters import EVERYTHING
from quipu.pipeline.execution import source_reader
from quipu.pipeline.formats import bounds
from tests.pipeline.execution import direct
from tests.pipeline.spark.broker import Broker

CREATE = ("CREATE SOURCE s (a INT, l TEXT) FROM KAFKA BROKER '{0}' TOPIC '{1}' "
          "KEY FORMAT TEXT VALUE FORMAT JSON INCLUDE KEY {2}")


@pytest.mark.parametrize("envelope", ["", "ENVELOPE UPSERT"])
def test_blocks_are_decoded_as_if_they_were_one(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, envelope: str
) -> None:
    """I10, I15: rows and dead letters are the same, and bad records are read again once only."""
    topic = broker.topic(partitions=2)
    for partition in (0, 1):
        broker.send(topic, *(
            f'k{number}:{{"a": {"oops" if number % 7 == 3 else number}}}' for number in range(60)),
            partition=partition)
    source = direct.Planner([]).source(CREATE.format(broker.bootstrap, topic, envelope))
    whole = direct.read(source)
    assert len(whole.letters) == 2 * len([n for n in range(60) if n % 7 == 3])

    reads: list[Any] = []
    read_ranges = source_reader.read_ranges

    def counted(client: Any, ranges: Any, wanted: Any, **rest: Any) -> Any:
        reads.extend(ranges if wanted == EVERYTHING else ())
        return read_ranges(client, ranges, wanted, **rest)

    monkeypatch.setattr(source_reader, "read_ranges", counted)
    for size, values in ((60, bounds.VALUES_MAX), (1, bounds.VALUES_MAX), (1 << 20, 8)):
        monkeypatch.setattr(bounds, "BLOCK_SIZE", size)
        monkeypatch.setattr(bounds, "VALUES_MAX", values)
        reads.clear()
        assert direct.read(source) == whole
        assert 1 <= len(reads) <= 2  # one for each partition, however many blocks it has
