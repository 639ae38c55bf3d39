"""Timed tables: which times are closed, so that their events take effect.  Pure.

`TimeProgress` has spans of time, each with the number of events at its times; a time is closed
when a span covers it, all earlier times are closed, and as many different events have come as the
span says.  After that, any event of this time is a repetition, and is dropped.

If messages were bad, the numbers cannot be reached any more; from then on a span alone closes its
times, so that one bad message does not stop the source.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from quipu.pipeline.tables.merging import I64, U64

_END = np.iinfo(np.int64).max  # the end of time


class TimeSpan(NamedTuple):
    """The times [lower, upper), all of whose events were sent; `counts` are (time, events)."""

    lower: int
    upper: int
    counts: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class TimeProgress:
    """The progress of a timed table: times before `closed` are closed, `spans` are after it."""

    closed: int = 0
    spans: tuple[TimeSpan, ...] = ()
    lossy: bool = False

    def invariants(self) -> None:
        """Assert that spans are in order, none of them empty."""
        assert self.spans == tuple(sorted(self.spans)), self.spans
        assert all(span.lower < span.upper for span in self.spans), self.spans

    def to_json(self) -> str:
        return json.dumps({"closed": self.closed, "spans": self.spans, "lossy": self.lossy})

    @classmethod
    def from_json(cls, text: str) -> "TimeProgress":
        if not text:
            return cls()
        found = json.loads(text)
        return cls(found["closed"],
                   tuple(TimeSpan(lower, upper, tuple((time, count) for time, count in counts))
                         for lower, upper, counts in found["spans"]), found["lossy"])

    def with_messages(self, messages: Iterable[bytes]) -> "TimeProgress":
        """Add the spans of progress messages (`envelopes/materialize.py`)."""
        spans, lossy = set(self.spans), self.lossy
        for message in messages:
            found = json.loads(message)
            if "lost" in found:
                lossy = True
                continue
            upper = _END if found["upper"] is None else found["upper"]
            counts = tuple(sorted((time, count) for time, count in found["counts"]))
            if found["lower"] is not None and found["lower"] < upper:
                spans.add(TimeSpan(found["lower"], upper, counts))
        made = TimeProgress(self.closed, tuple(sorted(spans)), lossy)
        made.invariants()
        return made

    def advanced(self, times: I64) -> "TimeProgress":
        """Close the times that spans cover, given the times of all different waiting events."""
        known, numbers = np.unique(times, return_counts=True)
        arrived = dict(zip(known.tolist(), numbers.tolist(), strict=True))
        closed = self.closed
        for span in self.spans:  # sorted by lower, so one pass is enough
            if span.lower > closed:
                break
            short = [time for time, count in span.counts
                     if time >= closed and arrived.get(time, 0) < count and not self.lossy]
            closed = max(closed, min([span.upper, *short]))
        left = tuple(span for span in self.spans if span.upper > closed)
        assert closed >= self.closed, (closed, self.closed)  # a closed time stays closed
        made = TimeProgress(closed, left, self.lossy)
        made.invariants()
        return made


def first_of_each(first: U64, second: U64, diff: I64, time: I64) -> I64:
    """The first of each set of equal events (identity, time, difference), in their order."""
    order = np.lexsort((diff, time, second, first))
    same = np.ones(len(order), np.bool_)
    for each in (first, second, diff, time):
        ranked = each[order]
        same[1:] &= ranked[1:] == ranked[:-1]
    same[:1] = False
    found: I64 = np.sort(order[~same])  # lexsort is stable, so these are the first ones
    return found


def by_time(time: I64, diff: I64) -> npt.NDArray[np.intp]:
    """The order in which events take effect: at each time rows are removed, then added."""
    return np.lexsort((diff, time))
