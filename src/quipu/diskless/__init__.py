"""Topics without local logs: batches live in shared objects, and a control plane orders them.

    values.py        LogKey, BatchCoordinates, BatchRun: what the other modules talk about
    errors.py        what may go wrong with the control plane and the objects
    objects/         the bytes of objects, and their keys
    control_plane/   who assigns offsets and knows where each batch is
    writing/         batches of many logs become objects, in one order
    reading/         batches come back from objects, through one cache
    cleaning/        retention, and the end of objects that nothing refers to
    tiering/         old batches become remote segments
    run_bytes.py     the batches in a run's bytes, for tiering and for Spark's tasks
    rebuild.py       fills an empty control plane from the objects of a store
    rebuild_plan.py  which offsets their batches have
    rebuild_lineage.py  which leader epochs a log has that was on disks

Start with control_plane/interface.py, then writing/writer.py and reading/reader.py.

Not here: how a node serves such topics (broker/diskless), how Spark reads them (pipeline/reading).
This room knows no local log: Spark's executors use it without a broker.
"""
