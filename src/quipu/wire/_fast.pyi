from quipu.wire._fast_pure import Part
from quipu.wire.fetch_codec import Buffer, FetchCall, FetchedPart
from quipu.wire.produce_codec import ProducedPart
from quipu.wire.record_batch import BatchHeader

def parse_produce(
    frame: memoryview, position: int, version: int, parts_max: int = ...
) -> tuple[str | None, int, int, list[Part]]: ...
def encode_one_part(
    correlation_id: int, version: int, topic: str | bytes, part: ProducedPart
) -> bytes: ...
def parse_fetch(frame: memoryview, position: int, version: int) -> FetchCall: ...
def encode_one_fetched(
    correlation_id: int,
    version: int,
    topic: str | bytes,
    part: FetchedPart,
    *,
    session_id: int,
    committed_only: bool,
) -> list[Buffer]: ...
def check_batch(data: memoryview, *, size_max: int) -> BatchHeader: ...
def stamp(
    batch: memoryview | bytearray,
    header: BatchHeader,
    *,
    batch_type: int,
    log_offset: int,
    base_offset: int,
    leader_epoch: int,
) -> bytes: ...
def slices(
    mapping: memoryview,
    position: int,
    *,
    offset: int,
    end_offset: int,
    limit: int,
    min_one: bool,
) -> tuple[list[memoryview], int, int]: ...
