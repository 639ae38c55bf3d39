"""A Spark data source without work: the limit of all data sources in Python.

It fetches and decodes nothing; every task yields the same Arrow batch repeatedly.  So it measures
only the transfer from Python to Spark.
"""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from quipu.bench.sql.rows import RowKind, arrow_table
from quipu.pipeline.reading.options import columns_option
from quipu.pipeline.spark.data_source.columns import schema_of

NAME: Final = "quipu_bench_ready"
BATCH_SIZE: Final = 1 << 20


class ReadySource(DataSource):
    """A data source without a broker.  Options: `rows`, and `size` of their values."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return schema_of(columns_option({}))

    def reader(self, schema: StructType) -> "ReadyReader":
        return ReadyReader(int(self.options["rows"]), int(self.options["size"]), schema)


class ReadyReader(DataSourceReader):
    """Yields the same batch in as many tasks as the topic has partitions."""

    def __init__(self, rows: int, size: int, schema: StructType) -> None:
        self._rows = rows
        self._size = size
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        kind = RowKind(count=self._rows, value_size=self._size, keys=1)
        return [InputPartition(number) for number in range(kind.partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        whole = RowKind(count=self._rows, value_size=self._size, keys=1)
        left = len(whole.numbers(partition.value))
        count = min(left, max(1, BATCH_SIZE // self._size))
        kind = RowKind(count=count * whole.partitions, value_size=self._size, keys=1)
        table = arrow_table(kind, NAME, partition.value).combine_chunks()
        (batch,) = table.cast(to_arrow_schema(self._schema, timezone="UTC")).to_batches()
        while left > 0:
            yield batch.slice(0, min(left, count))
            left -= count
