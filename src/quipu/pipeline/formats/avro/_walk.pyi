from collections.abc import Mapping, Sequence

import pyarrow as pa

from quipu.pipeline.formats.avro._walk_pure import Walked
from quipu.pipeline.formats.avro.steps import ArrowSink, Code, ReadProgram

def load(program: ReadProgram) -> Code: ...
def schema_ids(data: pa.BinaryArray) -> list[int]: ...
def walk(
    sinks: Sequence[ArrowSink], codes: Mapping[int, Code], data: pa.BinaryArray, *, framed: bool
) -> Walked: ...
