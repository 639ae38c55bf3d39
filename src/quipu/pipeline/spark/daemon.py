"""The process from which Spark forks its Python workers, with the modules they need imported.

Spark's own daemon imports almost nothing, so that each worker spends most of a second on imports
before its first task.  Spark starts another daemon for each kind of worker; only those for tasks
need these modules.

Workers collect garbage after every task.  The imported modules live as long as the workers, and
scanning them each time takes longer than a small task, so they are frozen.

Workers receive megabytes at a time, for a moment each.  glibc gives such memory back to the system
at once, and the next piece is made of new pages, whose first touch costs more than all other work
on a row of 1000 bytes.  So workers keep up to KEPT_SIZE bytes for the next piece.
"""

import ctypes
import gc
import os
import socket
import sys

from pyspark import daemon

TASKS = "pyspark.worker"
KEPT_SIZE = 64 << 20
PIECE_SIZE = 32 << 20  # the largest that glibc allows: larger ones are given back at once
M_TRIM_THRESHOLD = -1  # glibc's names and numbers
M_MMAP_THRESHOLD = -3

_work = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:  # noqa: FBT001 Spark's signature
    """Run one task; if Spark has closed the connection, end without a message."""
    try:
        return _work(sock, authenticated)
    except BrokenPipeError:  # the stream was stopped, or Spark was
        os._exit(1)


def keep_memory() -> None:
    """Have malloc keep memory that was freed; does nothing where it is not glibc's."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, PIECE_SIZE)
        mallopt(M_TRIM_THRESHOLD, KEPT_SIZE)


if __name__ == "__main__":
    if TASKS in sys.argv:
        import quipu.pipeline.spark.data_source.source
        import quipu.pipeline.spark.queries.relations
        import quipu.pipeline.spark.statements.snapshots
        import quipu.pipeline.spark.views.results
        import quipu.pipeline.spark.views.tasks
        import quipu.pipeline.views.group_merge
        import quipu.pipeline.views.merge_task  # noqa: F401 see above
        keep_memory()
    gc.collect()
    gc.freeze()
    daemon.worker = worker
    daemon.manager()
