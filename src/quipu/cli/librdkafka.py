"""Settings of librdkafka for `quipu produce` and `quipu consume`, and its errors as text."""

import logging
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from quipu.cli.cluster import CLIENT_ID


def client_config(bootstrap: str) -> dict[str, Any]:
    """Settings of producers and consumers alike."""
    return {
        "bootstrap.servers": bootstrap,
        "client.id": CLIENT_ID,
        "socket.connection.setup.timeout.ms": 5000,
        "logger": _silent(),  # the command itself reports errors
    }


def reason(error: Exception | KafkaError) -> str:
    """The broker's or librdkafka's message, with the name of the error."""
    inner = error.args[0] if isinstance(error, KafkaException) else error
    if not isinstance(inner, KafkaError):
        return str(inner)
    return f"{inner.str()} [{inner.name()}]"


def _silent() -> logging.Logger:
    logger = logging.getLogger("librdkafka")
    logger.disabled = True
    return logger
