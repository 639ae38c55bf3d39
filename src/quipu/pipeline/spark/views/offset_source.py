"""The streaming source of a view, which only gives Spark the end offsets of the next batch.

Spark writes the end offsets of a batch to its checkpoint, and calls the batch; the batch itself
then reads the messages between the last version and these offsets (`stream.py`).  The source has no
rows, because Spark would read them in tasks for which it starts one more process each time.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from quipu.client.commit import commit
from quipu.client.errors import ClientError
from quipu.client.shared import shared
from quipu.pipeline.execution.pruning import read_options
from quipu.pipeline.reading.positions import Reached
from quipu.pipeline.reading.ranges import limited
from quipu.pipeline.reading.stream import Pace, Stream
from quipu.pipeline.views import versions
from quipu.pipeline.views.inputs import (
    SourceInput,
    ViewInputs,
    positions_from_json,
    positions_to_json,
    warn_recreated,
)
from quipu.pipeline.views.versions import SourceCounts

NAME = "quipu_view_offsets"
OPTION = "inputs"
WAIT_SECONDS = 1.0
PAUSE_SECONDS_MIN = 0.01
PAUSE_SECONDS_MAX = 0.05
BATCH_SIZE_MAX = 256 << 20  # of the messages of one source in one batch, about
FIRST_OFFSETS_MAX = 100_000  # in the first batch, when their size is not known


class OffsetSource(DataSource):
    """The data source of views' streaming queries; its option is the text of a `ViewInputs`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return "nothing int"

    def streamReader(self, schema: StructType) -> "OffsetReader":  # noqa: ARG002 Spark calls it
        return OffsetReader(ViewInputs.from_text(self.options[OPTION]))


class OffsetReader(DataSourceStreamReader):
    """Requests the ends of a view's topics from brokers, in a process beside the driver."""

    def __init__(self, inputs: ViewInputs) -> None:
        self._inputs = inputs
        self._made: list[Stream] | None = None  # made in the process that uses them, not pickled

    def initialOffset(self) -> dict[str, Any]:
        """The positions of the view's version 0, which is published before its stream starts."""
        return positions_to_json(versions.latest(self._inputs.versions).positions)

    def latestOffset(
        self, start: dict[str, Any], limit: ReadLimit,  # noqa: ARG002 Spark's signature
    ) -> dict[str, Any]:
        """The end positions of the next batch; waits up to WAIT_SECONDS for new messages.

        A request to a broker is cheaper than a trigger of Spark that finds nothing.
        """
        deadline = time.monotonic() + WAIT_SECONDS
        pause = PAUSE_SECONDS_MIN
        while True:
            found = positions_to_json(self._latest(positions_from_json(start)))
            if found != start or time.monotonic() + pause > deadline:
                return found
            time.sleep(pause)
            pause = min(pause * 2, PAUSE_SECONDS_MAX)

    def _latest(self, start: list[Reached]) -> list[Reached]:
        ends = [stream.latest(position, Pace.ALL)
                for stream, position in zip(self._streams, start, strict=True)]
        if ends == start:
            return ends
        seen = versions.latest(self._inputs.versions).counts or [SourceCounts()] * len(ends)
        return [last._replace(positions=limited(
                    first.positions, last.positions,
                    batch_limit(counts, self._inputs.batch_offsets_max)))
                for first, last, counts in zip(start, ends, seen, strict=True)]

    def commit(self, end: dict[str, Any]) -> None:
        """Commit offsets to the groups of sources, for tools that monitor their lag."""
        for each, reached in zip(self._inputs.sources, positions_from_json(end), strict=True):
            client = read_options(each.source.source).client
            if client.group_id is not None:
                with suppress(ClientError):  # the stream continues from Spark's checkpoint
                    commit(shared(client), client.group_id, reached.positions)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        del start, end
        return []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        del partition
        return iter(())

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": None}  # pipeline.D1

    @property
    def _streams(self) -> list[Stream]:
        if self._made is None:
            self._made = [self._stream(each) for each in self._inputs.sources]
        return self._made

    def _stream(self, source_input: SourceInput) -> Stream:
        options = read_options(source_input.source.source)
        return Stream(shared(options.client), options, time.monotonic, warn=warn_recreated)


def batch_limit(seen: SourceCounts, offsets_max: int) -> int:
    """The most messages of a source in one batch, from the mean size of its messages so far."""
    if seen.messages == 0:
        return min(FIRST_OFFSETS_MAX, offsets_max)
    return max(1, min(BATCH_SIZE_MAX * seen.messages // max(seen.size, 1), offsets_max))
