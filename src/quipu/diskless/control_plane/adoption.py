"""Logs that were on disks until now: what a control plane is told of them, and when it listens.

A topic on chains becomes diskless (controller/migration.py): all of its records are in the remote
tier then.  The head of each partition enters the log, its producers and its leader epochs, before
anything is written to it through the control plane.

Pure; used by all control planes.
"""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from quipu.diskless.control_plane.interface import PRODUCER_BATCHES, AdoptedLog
from quipu.diskless.control_plane.sequences import ProducerHistory, SequencedBatch
from quipu.diskless.values import BORN_DISKLESS, Lineage, LogBounds
from quipu.model.ids import Offset, ProducerId, TimestampMs

OWNER = "adoption"  # of the claim that an adopted log begins with


class AdoptionVerdict(Enum):
    """Whether a log is entered."""

    ENTER = "enter"
    KNOWN = "known"  # it was, in this very epoch
    REFUSED = "refused"  # by a later head, or because it has been written to


class LogBefore(NamedTuple):
    """What a control plane has of the log so far."""

    bounds: LogBounds
    lineage: Lineage


def judge_adoption(stored: LogBefore | None, adopted: AdoptedLog) -> AdoptionVerdict:
    """diskless.C12: an adoption replaces earlier ones, and nothing else."""
    if stored is None:
        return AdoptionVerdict.REFUSED  # the topic is deleted
    known_epoch = stored.lineage[-1][0]
    if stored.lineage != BORN_DISKLESS and known_epoch >= adopted.epoch:
        return AdoptionVerdict.KNOWN if known_epoch == adopted.epoch else AdoptionVerdict.REFUSED
    start, end = stored.bounds.diskless_start_offset, stored.bounds.high_watermark
    if start != end or (end > 0 and stored.lineage == BORN_DISKLESS):
        return AdoptionVerdict.REFUSED  # it has been written to
    return AdoptionVerdict.ENTER


def lineage_of(adopted: AdoptedLog) -> Lineage:
    """The leader epochs of the log from now on."""
    before = tuple((epoch, start) for epoch, start in adopted.epochs
                   if epoch < adopted.epoch and start < adopted.end_offset)
    return (*before, (adopted.epoch, adopted.end_offset))


def histories_of(adopted: AdoptedLog, now_ms: int) -> dict[ProducerId, ProducerHistory]:
    """The producers of the log, as the control plane remembers them."""
    return {
        each.producer_id: ProducerHistory(
            each.producer_epoch,
            tuple(SequencedBatch(first, last, Offset(base))
                  for first, last, base in each.batches[-PRODUCER_BATCHES:]),
            each.last_timestamp, TimestampMs(now_ms))
        for each in adopted.producers if each.batches}


def encode_lineage(lineage: Lineage) -> str:
    """Leader epochs as text: `3:0,7:1500`."""
    return ",".join(f"{epoch}:{start}" for epoch, start in lineage)


def decode_lineage(text: str | None) -> Lineage:
    """What `encode_lineage` made; without text, those of a log that was never on disks."""
    if not text:
        return BORN_DISKLESS
    pairs: Sequence[Sequence[str]] = [each.split(":") for each in text.split(",")]
    return tuple((int(epoch), Offset(int(start))) for epoch, start in pairs)
