"""What a planned source reads, as options of a reader."""

from quipu.client.settings import client_settings
from quipu.model.ids import TopicPartition
from quipu.pipeline.reading.options import LATEST, Bound, Edge, ReadOptions, Selection
from quipu.pipeline.source import Place, Start


def place_options(place: Place, start: Start, *, read_committed: bool = True) -> ReadOptions:
    """Options of a planned source."""
    isolation = "read_committed" if read_committed else "read_uncommitted"
    settings = {"isolation.level": isolation, **place.options,
                "bootstrap.servers": place.bootstrap}
    offsets = {TopicPartition(topic, partition): offset
               for topic, those in start.offsets.items() for partition, offset in those.items()}
    return ReadOptions(
        client_settings(settings), Selection(place.topics, place.pattern),
        Bound(Edge.EARLIEST, offsets), LATEST)
