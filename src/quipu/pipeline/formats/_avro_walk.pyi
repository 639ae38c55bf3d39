from collections.abc import Mapping, Sequence

import pyarrow as pa

from quipu.pipeline.formats._avro_walk_pure import Walked
from quipu.pipeline.formats.avro_steps import Code, Program, Sink

def load(program: Program) -> Code: ...
def schema_ids(data: pa.BinaryArray) -> list[int]: ...
def walk(
    sinks: Sequence[Sink], codes: Mapping[int, Code], data: pa.BinaryArray, *, framed: bool
) -> Walked: ...
