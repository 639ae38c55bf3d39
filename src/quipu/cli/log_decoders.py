"""Decodes the records of internal batches for `quipu log show --records`.

The decoders belong to the rooms that write the batches; records of other types are printed raw.
"""

from collections.abc import Callable, Mapping
from typing import Final

from quipu.broker.coordinators.record_log import mark_of
from quipu.broker.groups import records as group_records
from quipu.controller import records as controller_records
from quipu.model.batch_types import CONTROLLER, GROUP
from quipu.model.errors import QuipuError
from quipu.storage.inspect.render import (
    RECORDS_SIZE_MAX,
    STORAGE_DECODERS,
    Decoder,
    Json,
    record_json,
)
from quipu.wire.record_batch import Record, decode_records
from quipu.wire.stored_batch import PREFIX_SIZE, StoredHeader, parse_stored


def _commands(decode: Callable[[bytes], object]) -> Decoder:
    """A decoder for records whose values are commands: each is shown as its message."""

    def decode_batch(stored: memoryview) -> list[Json]:
        header = parse_stored(stored)
        return [_command(decode, record, header)
                for record in decode_records(stored[PREFIX_SIZE:], size_max=RECORDS_SIZE_MAX)]

    return decode_batch


def _command(decode: Callable[[bytes], object], record: Record, header: StoredHeader) -> Json:
    try:
        command = decode(record.value or b"")
    except QuipuError as error:  # perhaps written by a newer version: show it raw, with the error
        return {**record_json(record, header), "note": str(error)}
    return {"log_offset": header.log_offset + record.offset - header.base_offset,
            "command": repr(command)}


def _group_command(data: bytes) -> object:
    """A command about groups, or the mark that records with keys have taken their place."""
    return mark_of(data) or group_records.decode_record(data)


DECODERS: Final[Mapping[int, Decoder]] = {
    **STORAGE_DECODERS,
    CONTROLLER: _commands(controller_records.decode_record),
    GROUP: _commands(_group_command),
}
