"""Spark looks for packages named pyspark_* with a DefaultSource: `format("quipu")` just works."""

from quipu.pipeline.spark.datasource import QuipuDataSource as DefaultSource

__all__ = ["DefaultSource"]
