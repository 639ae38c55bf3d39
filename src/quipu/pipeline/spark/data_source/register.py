"""Registers the data source `quipu` with a session.

Spark finds `format("quipu")` by itself if this package is installed (`pyspark_quipu`); a session
that does not see the packages of its Python has to register it.  A registered data source has
Python workers of its own, which take a moment to start, so this is not done by default.
"""

from pyspark.sql import SparkSession

from quipu.pipeline.spark.data_source.source import QuipuDataSource
from quipu.pipeline.spark.session import sessions


def register(spark: SparkSession) -> None:
    """Register `format("quipu")` with a session that does not find it by itself."""
    sessions.register(spark, QuipuDataSource)
