from quipu.pipeline.records.batches import Chunk, OffsetSpan, WantedColumns
from quipu.pipeline.records.transactions import Transactions

def gather(
    data: memoryview, position: int, span: OffsetSpan, wanted: WantedColumns,
    transactions: Transactions,
) -> Chunk: ...

def gather_runs(
    runs: list[memoryview], span: OffsetSpan, wanted: WantedColumns, transactions: Transactions
) -> Chunk | None: ...
