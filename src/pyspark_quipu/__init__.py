"""Makes Spark find `format("quipu")`: it searches packages named pyspark_* for a DefaultSource."""

from quipu.pipeline.spark.data_source.source import QuipuDataSource as DefaultSource

__all__ = ["DefaultSource"]
