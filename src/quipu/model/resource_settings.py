"""The tables of the settings of groups and of subscriptions to client metrics, with Kafka's names.

Both are stored with the cluster's metadata and shown, so that the tools that set them work.  What
has no effect says why in `ignored`, as in the other tables.

Not here: the settings of brokers and topics (broker_settings, topic_settings).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from quipu.model.settings_types import (
    INT_MAX,
    Setting,
    SettingType,
    ValueRule,
    choice,
    int32,
    ruled,
    settings_of,
)

VALUE_SIZE_MAX: Final = 4096  # characters of one value
MATCH_COUNT_MAX: Final = 100  # conditions of one subscription
INTERVAL_MS_LOW: Final = 100
INTERVAL_MS_HIGH: Final = 3_600_000
MATCHED: Final = (
    "client_instance_id", "client_id", "client_software_name", "client_software_version",
    "client_source_address", "client_source_port")

_NO_CONSUMERS: Final = "groups of the consumer protocol (KIP-848) are not served."
_NO_SHARE: Final = "share groups are not served."
_NO_STREAMS: Final = "groups of the streams protocol are not served."
_NO_RECEIVER: Final = "there is no receiver of clients' metrics, so no client is asked for any."
_DURATION: Final = re.compile(
    r"by_duration:P(?=[0-9T])(?:[0-9]{1,9}D)?(?:T(?=[0-9])(?:[0-9]{1,9}H)?(?:[0-9]{1,9}M)?"
    r"(?:[0-9]{1,9}(?:\.[0-9]{1,9})?S)?)?")


def _parse_reset(value: str) -> str:
    if value not in ("earliest", "latest") and _DURATION.fullmatch(value) is None:
        raise ValueError
    return value


def _parse_words(value: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in value.split(",") if word.strip())


def _parse_match(value: str) -> tuple[str, ...]:
    words = _parse_words(value)
    if len(words) > MATCH_COUNT_MAX:
        raise ValueError
    for word in words:
        name, equals, pattern = word.partition("=")
        if name.strip() not in MATCHED or not equals or not pattern.strip():
            raise ValueError
        try:
            re.compile(pattern.strip())
        except (re.error, OverflowError, RecursionError):
            raise ValueError from None
    return words


RESET: Final = ValueRule(
    SettingType.STRING, _parse_reset, "earliest, latest, or by_duration: and an ISO 8601 duration")
METRICS: Final = ValueRule(SettingType.LIST, _parse_words, "a comma list of prefixes")
MATCH: Final = ValueRule(
    SettingType.LIST, _parse_match,
    f"at most {MATCH_COUNT_MAX} name=pattern, separated by commas; names are {', '.join(MATCHED)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """The settings of one group; the limits are the defaults of Kafka's brokers."""

    consumer_heartbeat_interval_ms: int = int32(
        5000, "Milliseconds between heartbeats of members of a consumer group.",
        ignored=_NO_CONSUMERS, low=5000, high=15_000)
    consumer_session_timeout_ms: int = int32(
        45_000, "Milliseconds without a heartbeat after which a member of a consumer group has "
        "left.", ignored=_NO_CONSUMERS, low=45_000, high=60_000)
    share_auto_offset_reset: str = ruled(
        "latest", RESET, "Where a share group begins to read a partition.", ignored=_NO_SHARE)
    share_heartbeat_interval_ms: int = int32(
        5000, "Milliseconds between heartbeats of members of a share group.",
        ignored=_NO_SHARE, low=5000, high=15_000)
    share_isolation_level: str = choice(
        "read_uncommitted", ("read_committed", "read_uncommitted"),
        "Whether a share group gets records of transactions that are open or were aborted.",
        ignored=_NO_SHARE)
    share_record_lock_duration_ms: int = int32(
        30_000, "Milliseconds for which a member of a share group holds a record.",
        ignored=_NO_SHARE, low=15_000, high=60_000)
    share_session_timeout_ms: int = int32(
        45_000, "Milliseconds without a heartbeat after which a member of a share group has left.",
        ignored=_NO_SHARE, low=45_000, high=60_000)
    streams_heartbeat_interval_ms: int = int32(
        5000, "Milliseconds between heartbeats of members of a streams group.",
        ignored=_NO_STREAMS, low=5000, high=15_000)
    streams_initial_rebalance_delay_ms: int = int32(
        3000, "Milliseconds that a new streams group waits for more members.",
        ignored=_NO_STREAMS, low=0, high=INT_MAX)
    streams_num_standby_replicas: int = int32(
        0, "Standby replicas of each task of a streams group.", ignored=_NO_STREAMS,
        low=0, high=2)
    streams_session_timeout_ms: int = int32(
        45_000, "Milliseconds without a heartbeat after which a member of a streams group has "
        "left.", ignored=_NO_STREAMS, low=45_000, high=60_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientMetricsSettings:
    """One subscription to metrics of clients (KIP-714)."""

    interval_ms: int = int32(
        300_000, "Milliseconds between two pushes of a client's metrics.",
        ignored=_NO_RECEIVER, low=INTERVAL_MS_LOW, high=INTERVAL_MS_HIGH)
    match: tuple[str, ...] = ruled(
        (), MATCH, "The clients that are asked: pairs of a property and a pattern, all of which "
        "must match; none means all clients.", ignored=_NO_RECEIVER)
    metrics: tuple[str, ...] = ruled(
        (), METRICS, "Prefixes of the names of the metrics that are wanted; `*` means all.",
        ignored=_NO_RECEIVER)


GROUP: Final[Mapping[str, Setting]] = settings_of(GroupSettings)
CLIENT_METRICS: Final[Mapping[str, Setting]] = settings_of(ClientMetricsSettings)
