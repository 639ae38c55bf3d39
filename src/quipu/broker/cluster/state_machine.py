"""The state machine that the quorum replicates: applies committed commands, notifies listeners.

Invariants
    broker.cluster.A1  the state is changed only by commands of the quorum, in the same order on
                       every node
    broker.cluster.A2  a restored snapshot replaces the whole state; listeners are notified of what
                       is different (broker.cluster.N2)
    broker.cluster.A3  commands of another node are checked before they are kept
                       (controller/record_bounds.py)
    broker.cluster.A4  a record about topics that does not fit the state is skipped and logged: it
                       stops no node

Not here: decisions (decision_queue.py), the order of commands (broker/quorum).
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final
from uuid import UUID

from quipu.broker.cluster.metadata_listeners import MetadataListeners, MetadataView, differences
from quipu.controller.configs import effective_settings
from quipu.controller.record_bounds import check_record
from quipu.controller.record_preconditions import UnfitRecord
from quipu.controller.records import (
    ClusterCreated,
    PartitionsAdded,
    PartitionsMoved,
    ProducerIdsReserved,
    Record,
    TopicCreated,
    TopicDeleted,
    UnknownRecord,
    decode_record,
    encode_record,
)
from quipu.controller.snapshot import records_of
from quipu.controller.state import ClusterState
from quipu.model.errors import MalformedBytes
from quipu.model.ids import RaftIndex
from quipu.model.settings import BrokerSettings

# Records that change at most the one topic that they name; and those that change none.
_OF_ONE_TOPIC: Final = (TopicCreated, TopicDeleted, PartitionsAdded, PartitionsMoved)
_OF_NO_TOPIC: Final = (ClusterCreated, ProducerIdsReserved)

_log = logging.getLogger(__name__)


class MetadataStateMachine:
    """The cluster's metadata on this node."""

    def __init__(
        self, static: BrokerSettings, *, on_leadership: Callable[[bool], None]
    ) -> None:
        self.state = ClusterState()
        self.listeners = MetadataListeners()
        self.settings = static  # with the cluster's dynamic settings applied
        self.settings_users: list[Callable[[BrokerSettings], None]] = []  # told of each change
        self.left_out = 0  # records that were skipped (broker.cluster.A4)
        self._static = static
        self.leadership = on_leadership

    def check_commands(self, commands: Sequence[bytes]) -> None:
        """Raise `MalformedBytes` if no controller can have decided this (broker.cluster.A3)."""
        for command in commands:
            check_record(_read(command), self.state)

    def check_snapshot(self, items: Sequence[bytes]) -> None:
        """Raise `MalformedBytes` if no state can be built from `items` (broker.cluster.A3)."""
        state = ClusterState()
        for item in items:
            record = _read(item)
            check_record(record, state)
            try:
                state.apply(record)
            except (AssertionError, UnfitRecord, LookupError, ValueError) as error:
                raise MalformedBytes(f"a snapshot that cannot be built: {error!r}") from error

    def apply(self, index: RaftIndex, commands: Sequence[bytes]) -> None:
        """Apply one decision, and notify listeners (broker.cluster.A1)."""
        del index
        records = [decode_record(command) for command in commands]
        topic_ids = _touched(records)
        before = self._view(topic_ids)
        for record in records:
            self._apply_record(record)
        self._changed(before, self._view(topic_ids))

    def snapshot(self) -> Iterable[bytes]:
        """Commands that build the state as it is at this moment."""
        return [encode_record(record) for record in records_of(self.state)]

    def restore(self, items: Iterable[bytes]) -> None:
        """Replace the state by that of a snapshot (broker.cluster.A2)."""
        before = MetadataView.of(self.state)
        self.state = ClusterState()
        for item in items:
            self._apply_record(decode_record(item))
        self._changed(before, MetadataView.of(self.state))

    def _apply_record(self, record: Record) -> None:
        try:
            self.state.apply(record)
        except UnfitRecord as error:  # broker.cluster.A4
            self.left_out += 1
            _log.error("a metadata record does not fit, and is skipped on every node: %s: %s",
                       type(record).__name__, error)

    def _view(self, topic_ids: Iterable[UUID] | None) -> MetadataView:
        if topic_ids is None:
            return MetadataView.of(self.state)
        return MetadataView.of_topics(self.state, topic_ids)

    def _changed(self, before: MetadataView, after: MetadataView) -> None:
        if before.broker_configs is not after.broker_configs:
            self.settings = effective_settings(self.state, self._static.own_id, self._static)
            for use in self.settings_users:
                use(self.settings)
        self.listeners.notify(differences(before, after))


def _read(command: bytes) -> Record:
    try:
        return decode_record(command)
    except UnknownRecord as error:  # of a newer version of the program
        raise MalformedBytes(str(error)) from error


def _touched(records: Iterable[Record]) -> list[UUID] | None:
    """The topics that `records` change; None if they may change others, or brokers."""
    touched: dict[UUID, None] = {}
    for record in records:
        if isinstance(record, _OF_ONE_TOPIC):
            touched[record.topic_id] = None
        elif not isinstance(record, _OF_NO_TOPIC):
            return None
    return list(touched)
