"""Record batches as the broker keeps them, to Arrow columns, without a loop per record.

    columns       `read_columns`: where callers come in; which columns, which offsets
    transactions  which batches a reader of committed records does not see
    batches       what both twins below agree on: limits, the result, what corrupt means
    _columns      the walk over all records in C
    _columns_pure the same in plain Python: what serves without a compiler, and the oracle

Not here: fetching (`quipu.client`), what keys and values mean (`pipeline.formats`).
"""
