"""The columns of Spark's Kafka source, from records that were read."""

import pyarrow as pa

from quipu.client.ranges import Range
from quipu.pipeline.reading.loop import Read
from quipu.pipeline.spark.data_source import columns


def read_of(topic: str, partition: int, rows: int) -> Read:
    batch = pa.RecordBatch.from_pydict({"offset": pa.array(range(rows), pa.int64())})
    return Read(Range(topic, partition, 0, rows), batch, rows)


def test_topic_and_partition_are_repeated_for_every_row() -> None:
    """I1: whatever number of rows came before, of this topic or another."""
    counts = (3, 1, 4, 100, columns.REPEATED_ROWS_MAX + 1)
    reads = [read_of(topic, partition, rows) for rows in counts
             for topic in ("a", "longer") for partition in (0, 7)]
    made = list(columns.batches(iter(reads), ["topic", "partition", "offset"]))
    for read, batch in zip(reads, made, strict=True):
        rows = read.batch.num_rows
        assert batch.column("topic").to_pylist() == [read.range.topic] * rows
        assert batch.column("partition").to_pylist() == [read.range.partition] * rows
        assert batch.column("partition").type == pa.int32()
        batch.validate(full=True)


def test_a_sliced_column_is_sent_without_the_rest() -> None:
    """I1: what is kept for larger batches does not go to Spark with a small one."""
    large, small = columns.batches(
        iter([read_of("topic" * 20, 0, 30_000), read_of("topic" * 20, 0, 16_500)]), ["topic"])
    assert pa.ipc.get_record_batch_size(small) < pa.ipc.get_record_batch_size(large) * 0.6
