"""BYTES: one column of bytes, as they came; the column is the fetched array itself."""

import pyarrow as pa

from quipu.pipeline.formats.contract import Decoded
from quipu.pipeline.formats.specs import Bytes
from quipu.pipeline.types import Column


class BytesFormat:
    """See `contract.Format`."""

    def __init__(self, spec: Bytes) -> None:
        self.columns: tuple[Column, ...] = (
            Column(spec.name, pa.binary(), nullable=False),)

    def decode(self, data: pa.BinaryArray) -> Decoded:
        return Decoded([data], pa.nulls(len(data), pa.string()), data.is_null())
