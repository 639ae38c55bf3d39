"""What a planned source reads, as options of a reader."""

from typing import Final

from quipu.client.settings import client_settings
from quipu.model.ids import TopicPartition
from quipu.pipeline.reading.options import LATEST, Bound, Edge, ReadOptions, Selection
from quipu.pipeline.source import OnRecreated, Place, Start

RECREATED_HINT: Final = (
    "DROP what reads it and create it again, which reads the new topic from its start, and so the "
    "source itself if it has START OFFSET or START TIMESTAMP; with WITH (ON TOPIC RECREATED = "
    "'earliest') a source goes on with the new topic by itself")


def place_options(
    place: Place, start: Start, *, read_committed: bool = True,
    on_recreated: OnRecreated = OnRecreated.FAIL,
) -> ReadOptions:
    """Options of a planned source."""
    isolation = "read_committed" if read_committed else "read_uncommitted"
    settings = {"isolation.level": isolation, **place.options,
                "bootstrap.servers": place.bootstrap}
    offsets = {TopicPartition(topic, partition): offset
               for topic, those in start.offsets.items() for partition, offset in those.items()}
    return ReadOptions(
        client_settings(settings), Selection(place.topics, place.pattern),
        Bound(Edge.EARLIEST, offsets, start.topic_ids), LATEST, on_recreated=on_recreated,
        recreated_hint=RECREATED_HINT)
