"""Timed tables: which events may be seen yet.  Pure.

`Progress` knows spans of time, each with the number of events at its times; a time is closed when
a span covers it, all earlier times are closed, and as many different events have come as the span
says.  Then nothing new can come for it: whatever does is a repetition, and is dropped.

If messages were lost to errors the numbers cannot be met any more; from then on a span alone
closes its times, so that one bad message does not stop the source.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from quipu.pipeline.tables.merging import I64, U64

_END = np.iinfo(np.int64).max  # the end of time


class Span(NamedTuple):
    """Times [lower, upper) were sent, with so many events at each."""

    lower: int
    upper: int
    counts: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Progress:
    """See above.  Times before `closed` are closed."""

    closed: int = 0
    spans: tuple[Span, ...] = ()
    lossy: bool = False

    def to_json(self) -> str:
        return json.dumps({"closed": self.closed, "spans": self.spans, "lossy": self.lossy})

    @classmethod
    def from_json(cls, text: str) -> "Progress":
        if not text:
            return cls()
        found = json.loads(text)
        return cls(found["closed"],
                   tuple(Span(lower, upper, tuple((time, count) for time, count in counts))
                         for lower, upper, counts in found["spans"]), found["lossy"])

    def told(self, messages: Iterable[bytes]) -> "Progress":
        """With what progress events say (`envelopes/materialize.py`)."""
        spans, lossy = set(self.spans), self.lossy
        for message in messages:
            found = json.loads(message)
            if "lost" in found:
                lossy = True
                continue
            upper = _END if found["upper"] is None else found["upper"]
            counts = tuple(sorted((time, count) for time, count in found["counts"]))
            if found["lower"] is not None and found["lower"] < upper:
                spans.add(Span(found["lower"], upper, counts))
        return Progress(self.closed, tuple(sorted(spans)), lossy)

    def advanced(self, times: I64) -> "Progress":
        """With the times of all different events that wait."""
        known, numbers = np.unique(times, return_counts=True)
        arrived = dict(zip(known.tolist(), numbers.tolist(), strict=True))
        closed = self.closed
        for span in self.spans:  # by lower: one pass reaches as far as there is to go
            if span.lower > closed:
                break
            short = [time for time, count in span.counts
                     if time >= closed and arrived.get(time, 0) < count and not self.lossy]
            closed = max(closed, min([span.upper, *short]))
        left = tuple(span for span in self.spans if span.upper > closed)
        return Progress(closed, left, self.lossy)


def first_of_each(first: U64, second: U64, diff: I64, time: I64) -> I64:
    """Of events that are the same (identity, time, difference) the first, in their order."""
    order = np.lexsort((diff, time, second, first))
    same = np.ones(len(order), np.bool_)
    for each in (first, second, diff, time):
        ranked = each[order]
        same[1:] &= ranked[1:] == ranked[:-1]
    same[:1] = False
    found: I64 = np.sort(order[~same])  # lexsort is stable, so these are the first ones
    return found


def by_time(time: I64, diff: I64) -> npt.NDArray[np.intp]:
    """The order in which closed events take effect: at each time rows go before others come."""
    return np.lexsort((diff, time))
