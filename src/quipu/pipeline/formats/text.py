"""TEXT: one column of text."""

import numpy as np
import pyarrow as pa

from quipu.pipeline.formats.contract import Decoded
from quipu.pipeline.formats.specs import Text
from quipu.pipeline.formats.utf8 import BAD_UTF8, Mask, texts_of
from quipu.pipeline.types import Column


class TextFormat:
    """FORMAT TEXT: the message as text; the column shares the memory of the fetched bytes."""

    def __init__(self, spec: Text) -> None:
        self.columns: tuple[Column, ...] = (
            Column(spec.name, pa.string(), nullable=False),)

    def decode(self, data: pa.BinaryArray) -> Decoded:
        texts = texts_of(data)
        return Decoded([texts.values], errors_where(texts.bad, BAD_UTF8, len(data)),
                       data.is_null())


def errors_where(bad: Mask | None, text: str, count: int) -> pa.StringArray:
    """A column with the same error for all bad rows."""
    if bad is None:
        return pa.nulls(count, pa.string())
    return pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(count, np.int8), mask=~bad), pa.array([text])).cast(pa.string())
