"""Makes our data sources known to a session.

Spark finds `format("quipu")` by itself where this package is installed (`pyspark_quipu`); a session
that cannot see its Python's packages is told.
"""

from pyspark.sql import SparkSession

from quipu.pipeline.spark.datasource import QuipuDataSource


def register(spark: SparkSession) -> None:
    """Let `spark` know our formats."""
    spark.dataSource.register(QuipuDataSource)
