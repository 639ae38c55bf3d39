"""What every format does: an array of bytes in; columns, absences and complaints out."""

from typing import NamedTuple, Protocol

import pyarrow as pa

from quipu.pipeline.types import Column


class Decoded(NamedTuple):
    """Messages decoded, row for row.

    Invariant: where `errors` is not null, or `absent` is true, every column is null.
    """

    columns: list[pa.Array]  # one for each of the format's columns
    errors: pa.Array  # string: why a message could not be decoded; null where it could
    absent: pa.Array  # bool: there is no message (Kafka's null), or it decodes to nothing


class Format(Protocol):
    """A way to write values as bytes."""

    columns: tuple[Column, ...]  # not nullable: never null where a message could be decoded

    def decode(self, data: pa.BinaryArray) -> Decoded:
        """Decode all messages; none of them can make this fail."""
        ...
