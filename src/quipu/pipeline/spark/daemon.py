"""The process from which Spark's Python workers are forked, with what they need already loaded.

Spark's own daemon loads next to nothing, so that each worker spends most of a second on imports
before its first task.  Spark starts another daemon for each kind of work; only tasks need it all.

Workers collect garbage after every task.  What is loaded here lives as long as they do, and to look
through it again and again takes longer than a small task: it is put out of the collector's sight.
"""

import gc
import os
import socket
import sys

from pyspark import daemon

TASKS = "pyspark.worker"

_work = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:  # noqa: FBT001 Spark's signature
    """One task; a worker to whom nobody listens any more ends, and that is no news."""
    try:
        return _work(sock, authenticated)
    except BrokenPipeError:  # the stream was stopped, or Spark was
        os._exit(1)


if __name__ == "__main__":
    if TASKS in sys.argv:
        import quipu.pipeline.spark.datasource
        import quipu.pipeline.spark.feed_tasks
        import quipu.pipeline.spark.merging
        import quipu.pipeline.spark.relations
        import quipu.pipeline.spark.results
        import quipu.pipeline.spark.snapshots  # noqa: F401 see above
    gc.collect()
    gc.freeze()
    daemon.worker = worker
    daemon.manager()
