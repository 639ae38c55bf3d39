"""The stream of a view, as a Spark source that says how far there is something to read.

Spark writes down up to where a batch goes, and calls it; the batch then reads what lies between
that and its last version by itself (`view_batches`).  As a source Spark would read it in tasks that
have to be asked for, one more process each time, and hand on rows that it knows nothing about.
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
from quipu.pipeline.reading.positions import Reached
from quipu.pipeline.reading.ranges import limited
from quipu.pipeline.reading.stream import Pace, Stream
from quipu.pipeline.spark import versions
from quipu.pipeline.spark.feed import Feed, Tributary, places_from_json, places_to_json, take_note
from quipu.pipeline.spark.pruning import options_of
from quipu.pipeline.spark.versions import Counts

NAME = "quipu_feed"
WAIT_SECONDS = 1.0
PAUSE_SECONDS_MIN = 0.01
PAUSE_SECONDS_MAX = 0.05
BATCH_SIZE_MAX = 256 << 20  # of the messages of one source in one batch, about
FIRST_OFFSETS_MAX = 100_000  # in the first batch, when their size is not known


class FeedSource(DataSource):
    """See above.  Its option is `feed`, an encoded `Feed`; it has no rows."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return "nothing int"

    def streamReader(self, schema: StructType) -> "FeedReader":  # noqa: ARG002 Spark calls it
        return FeedReader(Feed.from_text(self.options["feed"]))


class FeedReader(DataSourceStreamReader):
    """Asks the brokers what there is; in a process beside the driver."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._made: list[Stream] | None = None  # not before it runs: streams do not travel

    def initialOffset(self) -> dict[str, Any]:
        """Where the view begins: it has written that down before its stream starts."""
        return places_to_json(versions.latest(self._feed.versions).places)

    def latestOffset(
        self, start: dict[str, Any], limit: ReadLimit,  # noqa: ARG002 Spark's signature
    ) -> dict[str, Any]:
        """Up to where the next batch goes; if there is nothing new, that is waited for a while.

        Asking a broker is cheaper than a round of Spark that finds nothing.
        """
        deadline = time.monotonic() + WAIT_SECONDS
        pause = PAUSE_SECONDS_MIN
        while True:
            found = places_to_json(self._latest(places_from_json(start)))
            if found != start or time.monotonic() + pause > deadline:
                return found
            time.sleep(pause)
            pause = min(pause * 2, PAUSE_SECONDS_MAX)

    def _latest(self, start: list[Reached]) -> list[Reached]:
        ends = [stream.latest(position, Pace.ALL)
                for stream, position in zip(self._streams, start, strict=True)]
        if ends == start:
            return ends
        seen = versions.latest(self._feed.versions).counts or [Counts()] * len(ends)
        return [last._replace(positions=limited(
                    first.positions, last.positions,
                    batch_limit(counts, self._feed.batch_offsets_max)))
                for first, last, counts in zip(start, ends, seen, strict=True)]

    def commit(self, end: dict[str, Any]) -> None:
        """Tell the offsets of groups, where a group is named, to whoever watches their lag."""
        for tributary, reached in zip(self._feed.tributaries, places_from_json(end), strict=True):
            client = options_of(tributary.source.source).client
            if client.group_id is not None:
                with suppress(ClientError):  # Spark's checkpoint is what counts
                    commit(shared(client), client.group_id, reached.positions)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        del start, end
        return []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        del partition
        return iter(())

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": None}

    @property
    def _streams(self) -> list[Stream]:
        if self._made is None:
            self._made = [self._stream(each) for each in self._feed.tributaries]
        return self._made

    def _stream(self, tributary: Tributary) -> Stream:
        options = options_of(tributary.source.source)
        return Stream(shared(options.client), options, time.monotonic, warn=take_note)


def batch_limit(seen: Counts, offsets_max: int) -> int:
    """How many messages of a source one batch takes, by the size that they had until now."""
    if seen.messages == 0:
        return min(FIRST_OFFSETS_MAX, offsets_max)
    return max(1, min(BATCH_SIZE_MAX * seen.messages // max(seen.size, 1), offsets_max))
