"""One partition of the metadata topic, while this node leads it.

    request -> operations in the log -> committed -> applied to the table -> response

Invariants
    broker.metadata_topic.S1  a write is carried out when its command is applied, which is after it
                              is committed; so every leader, now or later, carries out the same
                              writes in the same order
    broker.metadata_topic.S2  reads see every write whose response was sent: they read the table
                              only while this node leads with a lease
    broker.metadata_topic.S3  after a write whose outcome is unknown, nothing is applied any more:
                              its command may or may not be in the log before later ones.  The
                              shard is loaded again from the log, which knows

Not here: the log, its snapshots and its loading (coordinators/).
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from quipu.broker.coordinators.command_writer import CommandLog
from quipu.broker.coordinators.shard import CoordinatorShard
from quipu.broker.metadata_topic.codec import (
    Call,
    MetadataRequest,
    NotMetadataLeader,
    decode_command,
    encode_command,
)
from quipu.model.errors import Code, QuipuError
from quipu.remote.metadata.errors import (
    BackendUnavailable,
    ExpectationFailed,
    KeyExists,
    KeyNotFound,
    MetadataStorageError,
    OutcomeUnknown,
)
from quipu.remote.metadata.storage.backend import KeyValue, Operation, check_operations
from quipu.remote.metadata.storage.entry_table import EntryTable

_log = logging.getLogger(__name__)


class MetadataShard:
    """The entries of one partition of the topic: the state machine of a `CoordinatorShard`."""

    def __init__(
        self, name: str, log: CommandLog[bytes], reload: Callable[["MetadataShard"], None]
    ) -> None:
        """`reload` replaces this shard by one that reads the log again."""
        self._name = name
        self._table = EntryTable()
        self._reload = reload
        self._is_doubtful = False  # broker.metadata_topic.S3
        self._waiting: set[asyncio.Future[None]] = set()
        self.core = CoordinatorShard(name, log, self)

    # -- the state in the log

    def apply(self, command: bytes) -> None:
        """Apply one command of the log; one that cannot be carried out has no effect."""
        with suppress(ExpectationFailed, KeyExists, KeyNotFound):  # its sender got the same error
            self._table.apply(decode_command(command))

    def snapshot(self) -> Iterator[bytes]:
        """Commands that build all entries from nothing."""
        return map(encode_command, self._table.snapshot())

    async def prepare(self) -> None:
        """Do nothing: the table is complete when all commands are applied."""

    async def begin(self) -> None:
        """Do nothing: there are no timers."""

    # -- life

    def end(self, code: Code) -> None:
        """Serve no more; the outcome of writes that wait is unknown."""
        self.core.end(code)
        for waiting in list(self._waiting):
            if not waiting.done():
                waiting.set_exception(OutcomeUnknown(
                    f"{self._name}: this node stopped to lead it before the write was committed"))

    def close(self) -> None:
        """End with NOT_COORDINATOR, and write nothing any more: another node leads."""
        self.end(Code.NOT_COORDINATOR)
        self.core.close()

    # -- requests

    async def serve(self, request: MetadataRequest) -> list[KeyValue]:
        """Carry out a request; raises a `MetadataStorageError`."""
        if self.core.unavailable is not Code.NONE:
            raise (NotMetadataLeader if self.core.unavailable is Code.NOT_COORDINATOR
                   else BackendUnavailable)(f"{self._name}: {self.core.unavailable.name}")
        table, keys = self._table, request.keys  # broker.metadata_topic.S2
        match request.call:
            case Call.EXECUTE:
                await self._execute(request.operations)
                return []
            case Call.GET_MANY:
                return table.get_many(keys)
            case Call.FLOOR:
                return table.floor(*keys)
            case Call.PAGE:
                parent, after = keys
                return table.page(parent, after or None, request.limit)

    async def _execute(self, operations: Sequence[Operation]) -> None:
        """Write operations to the log, and apply them once they are committed."""
        check_operations(operations)
        if self.core.is_full:
            raise BackendUnavailable(f"{self._name}: too many writes wait")
        command = encode_command(operations)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(done)
        done.add_done_callback(self._waiting.discard)

        def kept(error: Exception | None) -> None:
            result = self._applied(operations, error)
            if not done.done():  # the caller may have been cancelled
                if result is None:
                    done.set_result(None)
                else:
                    done.set_exception(result)

        self.core.append([command], kept)
        await done

    def _applied(
        self, operations: Sequence[Operation], error: Exception | None
    ) -> MetadataStorageError | None:
        """Apply committed operations; returns the error for their sender."""
        if error is not None or self._is_doubtful:  # broker.metadata_topic.S3
            if not self._is_doubtful:
                self._is_doubtful = True
                if self.core.unavailable is Code.NONE:
                    _log.warning("%s: read again, because the outcome of a write is unknown: %s",
                                 self._name, error)
                    self._reload(self)
            return OutcomeUnknown(f"{self._name}: the write may not be committed"
                                  + (f": {error}" if isinstance(error, QuipuError) else ""))
        try:
            self._table.apply(operations)  # broker.metadata_topic.S1
        except (ExpectationFailed, KeyExists, KeyNotFound) as refused:
            return refused
        return None
