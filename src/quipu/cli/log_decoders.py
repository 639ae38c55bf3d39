"""What the records of internal batches mean, where the room that writes them can tell.

`quipu log show --records` prints records of other types as they are.
"""

from collections.abc import Mapping
from typing import Final

from quipu.controller.records import decode_record
from quipu.model.batch_types import CONTROLLER
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


def _controller(stored: memoryview) -> list[Json]:
    header = parse_stored(stored)
    return [
        _command(record, header)
        for record in decode_records(stored[PREFIX_SIZE:], size_max=RECORDS_SIZE_MAX)
    ]


def _command(record: Record, header: StoredHeader) -> Json:
    try:
        command = decode_record(record.value or b"")
    except QuipuError as error:  # by a newer version: show it as it is, and why
        return {**record_json(record, header), "note": str(error)}
    return {
        "log_offset": header.log_offset + record.offset - header.base_offset,
        "command": repr(command),
    }


DECODERS: Final[Mapping[int, Decoder]] = {**STORAGE_DECODERS, CONTROLLER: _controller}
