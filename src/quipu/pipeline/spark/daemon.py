"""The process from which Spark's Python workers are forked, with what they need already loaded.

Spark's own daemon loads next to nothing, so that each worker spends most of a second on imports
before its first task.
"""

from pyspark import daemon

import quipu.pipeline.spark.feed_tasks
import quipu.pipeline.spark.merging
import quipu.pipeline.spark.relations
import quipu.pipeline.spark.results
import quipu.pipeline.spark.snapshots  # noqa: F401 see above

if __name__ == "__main__":
    daemon.manager()
