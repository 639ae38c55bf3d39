from quipu.pipeline.records.batches import Chunk, Span, Wanted
from quipu.pipeline.records.transactions import Transactions

def gather(
    data: memoryview, position: int, span: Span, wanted: Wanted, transactions: Transactions
) -> Chunk: ...
