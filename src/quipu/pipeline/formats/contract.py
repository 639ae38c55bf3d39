"""The protocol of formats: an array of bytes in; columns, errors and absences out."""

from typing import NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from quipu.pipeline.types import Column


class Decoded(NamedTuple):
    """Decoded messages, one row each.

    Invariant: if `errors` is not null, or `absent` is true, every column of the row is null.
    """

    columns: list[pa.Array]  # one for each of the format's columns
    errors: pa.Array  # string: why a message could not be decoded; null for a good message
    absent: pa.Array  # bool: there is no message (Kafka's null), or it decodes to nothing


def null_where(bad: pa.BooleanArray, columns: list[pa.Array]) -> list[pa.Array]:
    """The columns with null in every bad row."""
    return [pc.if_else(bad, pa.scalar(None, column.type), column) for column in columns]


class Format(Protocol):
    """Decodes messages, by the FORMAT of a source."""

    columns: tuple[Column, ...]  # one that is not nullable is null only if a message is bad

    def decode(self, data: pa.BinaryArray) -> Decoded:
        """Decode all messages; none of them can make this fail."""
        ...
