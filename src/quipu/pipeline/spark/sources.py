"""Makes our data sources known to a session.

Spark finds `format("quipu")` by itself where this package is installed (`pyspark_quipu`); a session
that cannot see its Python's packages is told.  A source that is registered has Python workers of
its own, which take a moment to start, so this is not done where it is not needed.
"""

from pyspark.sql import SparkSession

from quipu.pipeline.spark import session
from quipu.pipeline.spark.datasource import QuipuDataSource


def register(spark: SparkSession) -> None:
    """Let `spark` know our formats."""
    session.register(spark, QuipuDataSource)
