"""The options of a reader for a planned source."""

from typing import Final

from quipu.client.settings import client_settings
from quipu.model.ids import TopicPartition
from quipu.pipeline.reading.options import LATEST, Bound, Edge, ReadOptions, TopicSelection
from quipu.pipeline.source import DirectRead, OnRecreated, Start, TopicLocation

RECREATED_HINT: Final = (
    "DROP what reads it and create it again, which reads the new topic from its start, and so the "
    "source itself if it has START OFFSET or START TIMESTAMP; with WITH (ON TOPIC RECREATED = "
    "'earliest') a source goes on with the new topic by itself")


def planned_options(
    location: TopicLocation, start: Start, *, read_committed: bool = True,
    on_recreated: OnRecreated = OnRecreated.FAIL, direct_read: DirectRead = DirectRead.AUTO,
) -> ReadOptions:
    """The options of a reader for the topics of a planned source."""
    isolation = "read_committed" if read_committed else "read_uncommitted"
    settings = {"isolation.level": isolation, **location.options,
                "bootstrap.servers": location.bootstrap}
    offsets = {TopicPartition(topic, partition): offset
               for topic, those in start.offsets.items() for partition, offset in those.items()}
    return ReadOptions(
        client_settings(settings), TopicSelection(location.topics, location.pattern),
        Bound(Edge.EARLIEST, offsets, start.topic_ids), LATEST, on_recreated=on_recreated,
        recreated_hint=RECREATED_HINT, direct_read=direct_read)
