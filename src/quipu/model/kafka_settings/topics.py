"""Kafka's settings of topics that have no effect here."""

from typing import Final

from quipu.model.kafka_settings.rows import KafkaSetting, no_effect

TOPICS: Final[tuple[KafkaSetting, ...]] = no_effect(
    "a test of Kafka's own sets it; set segment.bytes",
    """
    internal.segment.bytes  int  null  internal
    """)
