"""The topics whose batches may have to be compressed again: compression.type is not `producer`.

Mostly there are none, and then Produce looks at no batch's codec.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

from quipu.model.settings import TopicSettings

if TYPE_CHECKING:
    from quipu.controller.topic_state import Topic

AS_SENT = "producer"


class RecompressedTopics:
    """Keeps `found` up to date; notified of every change of the metadata."""

    def __init__(self, found: set[UUID], settings_of: "Callable[[Topic], TopicSettings]") -> None:
        self._found = found
        self._settings_of = settings_of

    def on_topic_created(self, topic: "Topic") -> None:
        self.on_config_changed(topic)

    def on_config_changed(self, topic: "Topic") -> None:
        if self._settings_of(topic).compression_type == AS_SENT:
            self._found.discard(topic.topic_id)
        else:
            self._found.add(topic.topic_id)

    def on_topic_deleted(self, topic: "Topic") -> None:
        self._found.discard(topic.topic_id)

    def on_partitions_added(self, topic: "Topic", first_new: int) -> None: ...
    def on_replicas_changed(self, topic: "Topic") -> None: ...
    def on_brokers_changed(self) -> None: ...
