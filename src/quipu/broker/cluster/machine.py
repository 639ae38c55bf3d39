"""The state machine that the quorum replicates: commands in, state and telling out.

Invariants
    A1  the state changes by commands of the quorum alone, in their order, the same on every node
    A2  a restored snapshot replaces the whole state; what is different is told (telling.py, N2)
    A3  what another node says was decided is looked at before it is kept (controller/plausible)
    A4  a record about topics that cannot be is left out and logged: it stops no node

Not here: decisions (decisions.py), the order of commands (broker/quorum).
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final
from uuid import UUID

from quipu.broker.cluster.telling import Picture, Telling, differences
from quipu.controller.configs import effective_settings
from quipu.controller.plausible import check_record
from quipu.controller.possible import ImpossibleRecord
from quipu.controller.records import (
    ClusterCreated,
    PartitionsAdded,
    ProducerIdsReserved,
    Record,
    TopicCreated,
    TopicDeleted,
    UnknownRecord,
    decode_record,
    encode_record,
)
from quipu.controller.state import ClusterState, records_of
from quipu.model.errors import MalformedBytes
from quipu.model.ids import RaftIndex
from quipu.model.settings import BrokerSettings

# Records that change at most the one topic that they name; and those that change none.
_OF_ONE_TOPIC: Final = (TopicCreated, TopicDeleted, PartitionsAdded)
_OF_NO_TOPIC: Final = (ClusterCreated, ProducerIdsReserved)

_log = logging.getLogger(__name__)


class Machine:
    """The cluster's metadata on this node."""

    def __init__(
        self, static: BrokerSettings, *, on_leadership: Callable[[bool], None]
    ) -> None:
        self.state = ClusterState()
        self.telling = Telling()
        self.settings = static  # with the cluster's dynamic settings on top
        self.left_out = 0  # records that could not be applied
        self._static = static
        self.leadership = on_leadership

    def check_commands(self, commands: Sequence[bytes]) -> None:
        """Raise `MalformedBytes` for what no controller can have decided (A3)."""
        for command in commands:
            check_record(_read(command), self.state)

    def check_image(self, items: Sequence[bytes]) -> None:
        """The same for a snapshot: build it, and see (A3)."""
        state = ClusterState()
        for item in items:
            record = _read(item)
            check_record(record, state)
            try:
                state.apply(record)
            except (AssertionError, ImpossibleRecord, LookupError, ValueError) as error:
                raise MalformedBytes(f"a snapshot that cannot be built: {error!r}") from error

    def apply(self, index: RaftIndex, commands: Sequence[bytes]) -> None:
        """Take in one decision, and tell of it."""
        del index
        records = [decode_record(command) for command in commands]
        topic_ids = _touched(records)
        before = self._picture(topic_ids)
        for record in records:
            self._take_in(record)
        self._changed(before, self._picture(topic_ids))

    def snapshot(self) -> Iterable[bytes]:
        """The state as commands that build it; all of it as it is at this moment."""
        return [encode_record(record) for record in records_of(self.state)]

    def restore(self, items: Iterable[bytes]) -> None:
        """Take the state of a snapshot in place of this one (A2)."""
        before = Picture.of(self.state)
        self.state = ClusterState()
        for item in items:
            self._take_in(decode_record(item))
        self._changed(before, Picture.of(self.state))

    def _take_in(self, record: Record) -> None:
        try:
            self.state.apply(record)
        except ImpossibleRecord as error:  # A4
            self.left_out += 1
            _log.error("a record of the metadata is left out, on every node alike: %s: %s",
                       type(record).__name__, error)

    def _picture(self, topic_ids: Iterable[UUID] | None) -> Picture:
        if topic_ids is None:
            return Picture.of(self.state)
        return Picture.of_topics(self.state, topic_ids)

    def _changed(self, before: Picture, after: Picture) -> None:
        if before.broker_configs is not after.broker_configs:
            self.settings = effective_settings(self.state, self._static.own_id, self._static)
        self.telling.tell(differences(before, after))


def _read(command: bytes) -> Record:
    try:
        return decode_record(command)
    except UnknownRecord as error:  # of a newer version: it is taken when this program is
        raise MalformedBytes(str(error)) from error


def _touched(records: Iterable[Record]) -> list[UUID] | None:
    """The topics that `records` change; None if it may be any, or more than topics."""
    touched: dict[UUID, None] = {}
    for record in records:
        if isinstance(record, _OF_ONE_TOPIC):
            touched[record.topic_id] = None
        elif not isinstance(record, _OF_NO_TOPIC):
            return None
    return list(touched)
