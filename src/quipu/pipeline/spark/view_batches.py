"""New versions of a view: one per batch of its stream, exactly once.

A batch is read, decoded and merged by tasks, and committed by the driver: first the tables of the
sources, then the result, then the version that says that all of it is there.  Spark's checkpoint
knows up to where a batch goes before it begins, and repeats the very same batch, under the same
number, if it was not finished; whatever of it was committed already is found and left alone.

Version 0 is the view before its first message; batch n makes version n + 1.
"""

import json
import time
from collections.abc import Callable, Iterable
from functools import partial, reduce
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from quipu.client.shared import shared
from quipu.pipeline.durable import flush_directory
from quipu.pipeline.envelopes.dead_letters import LETTERS
from quipu.pipeline.reading.positions import Reached, ranges_between, total
from quipu.pipeline.reading.stream import beginning
from quipu.pipeline.source import Source
from quipu.pipeline.spark import growing, jobs, versions
from quipu.pipeline.spark.aggregates import Grouped, ToEvents, taken_back
from quipu.pipeline.spark.feed import places_from_json, shares_between, take_note
from quipu.pipeline.spark.feed_source import NAME as FEED
from quipu.pipeline.spark.feed_tasks import read_shares
from quipu.pipeline.spark.growing import Piece
from quipu.pipeline.spark.merging import SMALL, Merge, merge_parcels, merged
from quipu.pipeline.spark.pruning import options_of
from quipu.pipeline.spark.regrouping import part_events, regrouping
from quipu.pipeline.spark.results import changed, replaced, row_events
from quipu.pipeline.spark.session import parallelism
from quipu.pipeline.spark.tasks import Item, Kind
from quipu.pipeline.spark.versions import NO_VERSION, Counts, Growth, Version
from quipu.pipeline.spark.view_changes import signed_changes
from quipu.pipeline.spark.views import View, manifest_at
from quipu.pipeline.tables import cleaning, commits
from quipu.pipeline.tables.commits import TableAt
from quipu.pipeline.tables.contract import BucketState

CLEAN_EVERY = 20  # batches
KEEP = 20  # versions, besides those that somebody needs


def begin(view: View, succeeded: Callable[[], None], *, trigger_ms: int) -> StreamingQuery:
    """Start the stream that makes new versions of a view, or let it go on where it was."""
    batches = Batches(view, succeeded)
    batches.prepare()
    reader = view.spark.readStream.format(FEED).option("feed", view.feed.to_text())
    query = (
        reader.load().writeStream.foreachBatch(batches.run)
        .option("checkpointLocation", str(view.checkpoint))
        .trigger(processingTime=f"{trigger_ms} milliseconds")
        .start()
    )
    view.job_group = query.runId
    return query


class Batches:
    """The batches of a view's stream."""

    def __init__(self, view: View, succeeded: Callable[[], None]) -> None:
        self._view = view
        self._succeeded = succeeded
        self.cores = parallelism(view.spark)

    def prepare(self) -> None:
        """Make the version that a view has before it has seen anything."""
        view = self._view
        if view.latest().number != NO_VERSION:
            return
        sources = [each.source.source for each in view.feed.tributaries]
        version = Version(0, NO_VERSION, time.time_ns() // 1_000_000,
                          tuple(starts(source) for source in sources),
                          tuple(Counts() for _ in sources))
        if view.result is not None:
            self._recompute(Version(), version, small=False)
        versions.publish(view.versions, version)

    def run(self, _: DataFrame, batch: int) -> None:
        """Make a version out of a batch."""
        view = self._view
        base = view.latest()
        number = batch + 1
        if base.number >= number:
            return
        places = self._places(batch)
        waiting = self._waiting(number)
        messages = sum(total(ranges_between(first, last)) for first, last
                       in zip(base.places, places, strict=True))
        small = messages <= SMALL
        shares = shares_between(view.feed, base.places, places, self.cores)
        items = merged(view.spark, [partial(read_shares, view.feed, each) for each in shares],
                       waiting, number, cores=self.cores, small=small)
        self._commit(waiting, items, number)
        version = self._version(base, number, places, items)
        if view.result is not None:
            self._recompute(base, version, small=small)
        versions.publish(view.versions, version)
        self._succeeded()
        if number % CLEAN_EVERY == 0:
            self._clean(version)

    def _places(self, batch: int) -> tuple[Reached, ...]:
        """Up to where a batch goes: Spark has written it down before the batch began."""
        lines = (self._view.checkpoint / "offsets" / str(batch)).read_text().splitlines()
        return tuple(places_from_json(json.loads(lines[-1])))

    def _waiting(self, number: int) -> dict[int, TableAt]:
        """The tables to which the batch is not committed yet."""
        found = {}
        for source, shape in self._view.shapes.items():
            directory = self._view.feed.tributaries[source].directory
            manifest = commits.begin(directory, number)
            if manifest is not None:
                found[source] = TableAt(directory, shape, manifest)
        return found

    def _commit(self, waiting: dict[int, TableAt], items: Iterable[Item], number: int) -> None:
        states: dict[int, list[BucketState]] = {}
        for item in items:
            if item.kind is Kind.STATE:
                states.setdefault(item.source, []).append(BucketState.from_json(item.json))
        for source, those in states.items():
            base = waiting[source]
            commits.commit(base.directory, base.manifest, number, those)

    def _version(
        self, base: Version, number: int, places: tuple[Reached, ...], items: list[Item],
    ) -> Version:
        counts = list(base.counts)
        grown: dict[int, list[Piece]] = {}
        dead: dict[int, list[Piece]] = {}
        for item in items:
            if item.kind is Kind.COUNTS:
                counts[item.source] = counts[item.source].plus(Counts(**item.json))
            elif item.kind is Kind.GROWN:
                grown.setdefault(item.source, []).append(Piece(*item.json))
            elif item.kind is Kind.DEAD:
                dead.setdefault(item.source, []).append(Piece(*item.json))
        tributaries = self._view.feed.tributaries
        return Version(
            number, base.number, time.time_ns() // 1_000_000, places, tuple(counts),
            {source: self._grown(tributaries[source].rows, self._view.row(source),
                                 base.grown.get(source, Growth()), grown.get(source, []))
             for source in {*base.grown, *grown}},
            {source: self._grown(tributaries[source].dead, LETTERS,
                                 base.dead.get(source, Growth()), dead.get(source, []))
             for source in {*base.dead, *dead}},
        )

    def _grown(
        self, directory: Path, schema: pa.Schema, base: Growth, added: list[Piece],
    ) -> Growth:
        """The pieces of a table that only grows; small ones are put together now and then."""
        pieces = [*base.pieces, *added]
        together = growing.to_put_together(pieces)
        if together:
            small = set(together)
            pieces = [piece for piece in pieces if piece not in small]
            pieces += self._put_together(directory, schema, together)
        if added:
            flush_directory(directory)  # names before the version that has them
        return Growth(tuple(pieces), tuple(added))

    def _put_together(
        self, directory: Path, schema: pa.Schema, pieces: list[Piece],
    ) -> list[Piece]:
        return jobs.run(self._view.spark, [
            partial(growing.put_together, directory, schema, pieces)])

    def _recompute(self, before: Version, version: Version, *, small: bool) -> None:
        """The result over the tables as they are in this version."""
        view = self._view
        assert view.result is not None
        directory, shape = view.result
        manifest = commits.begin(directory, version.number)
        if manifest is None:
            return
        base = TableAt(directory, shape, manifest)
        if view.plan.grouped is not None:
            states = self._regroup(view.plan.grouped, base, before, version, small=small)
        elif view.plan.analysis.is_product and before.number != NO_VERSION:
            frames = [each.with_diff for each in signed_changes(
                view, before, version, product=True, small=small)]
            states = self._changed(frames, base, version, row_events)
        else:
            frame = view.through_query(lambda name: view.source_frame(name, version))
            states = replaced(frame, base, version.number, self.cores)
        commits.commit(directory, manifest, version.number, states)

    def _regroup(
        self, grouped: Grouped, base: TableAt, before: Version, version: Version, *, small: bool,
    ) -> list[BucketState]:
        """The groups that a batch is about, as they are now."""
        view, aggregation = self._view, grouped.aggregation
        if before.number == NO_VERSION:
            parts = [view.through_query(
                lambda name: view.source_frame(name, version), aggregation.query)]
        else:
            parts = [
                each.frame if each.sign > 0 else taken_back(each.frame, aggregation)
                for each in signed_changes(view, before, version, query=aggregation.query,
                                           product=grouped.is_product, small=small)
                if each.sign > 0 or aggregation.takes_back
            ]
        return self._changed(parts, base, version, part_events(aggregation),
                             regrouping(aggregation))

    def _changed(
        self, frames: list[DataFrame], base: TableAt, version: Version, events: ToEvents,
        merge: Merge = merge_parcels,
    ) -> list[BucketState]:
        if not frames:
            return []
        return changed(reduce(DataFrame.unionByName, frames), base, version.number, self.cores,
                       events=events, merge=merge)

    def _clean(self, newest: Version) -> None:
        """Drop versions that nobody needs, and their files."""
        view = self._view
        oldest = view.oldest_needed(newest.number, KEEP)
        kept = [number for number in versions.numbers(view.versions) if number >= oldest]
        versions.forget(view.versions, set(kept))
        known = [versions.read(view.versions, number) for number in kept]
        for source, tributary in enumerate(view.feed.tributaries):
            if tributary.buckets:
                clean_table(tributary.directory, oldest)
            for directory, growths in (
                (tributary.rows, [each.grown.get(source, Growth()) for each in known]),
                (tributary.dead, [each.dead.get(source, Growth()) for each in known]),
            ):
                needed = {name for growth in growths for name in growth.files()}
                growing.clean(directory, needed, time.time_ns())
        if view.result is not None:
            clean_table(view.result[0], oldest)


def starts(source: Source) -> Reached:
    """Where a source begins to be read."""
    options = options_of(source)
    return beginning(shared(options.client), options, take_note)


def clean_table(directory: Path, oldest: int) -> None:
    """Drop the versions of a table that no version of the view from `oldest` on refers to."""
    first = manifest_at(directory, oldest).version
    keep = sum(number >= first for number in commits.versions(directory))
    if keep:
        cleaning.clean(directory, keep=keep)
