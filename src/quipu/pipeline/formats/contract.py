"""What every format does: an array of bytes in; columns, absences and complaints out."""

from typing import NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from quipu.pipeline.types import Column


class Decoded(NamedTuple):
    """Messages decoded, row for row.

    Invariant: where `errors` is not null, or `absent` is true, every column is null.
    """

    columns: list[pa.Array]  # one for each of the format's columns
    errors: pa.Array  # string: why a message could not be decoded; null where it could
    absent: pa.Array  # bool: there is no message (Kafka's null), or it decodes to nothing


def null_where(bad: pa.BooleanArray, columns: list[pa.Array]) -> list[pa.Array]:
    """The columns, null in every row that is bad."""
    return [pc.if_else(bad, pa.scalar(None, column.type), column) for column in columns]


class Format(Protocol):
    """A way to write values as bytes."""

    columns: tuple[Column, ...]  # not nullable: never null where a message could be decoded

    def decode(self, data: pa.BinaryArray) -> Decoded:
        """Decode all messages; none of them can make this fail."""
        ...
