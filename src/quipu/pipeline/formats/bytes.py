"""BYTES: one column with the unchanged bytes; the column is the fetched array itself."""

import pyarrow as pa

from quipu.pipeline.formats.contract import Decoded
from quipu.pipeline.formats.specs import Bytes
from quipu.pipeline.types import Column


class BytesFormat:
    """FORMAT BYTES: the message itself."""

    def __init__(self, spec: Bytes) -> None:
        self.columns: tuple[Column, ...] = (
            Column(spec.name, pa.binary(), nullable=False),)

    def decode(self, data: pa.BinaryArray) -> Decoded:
        return Decoded([data], pa.nulls(len(data), pa.string()), data.is_null())
