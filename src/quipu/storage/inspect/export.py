"""Writes the records of a log as the files of an Apache Kafka partition.

    export_log(disk, log, "out")    # out/orders-0/00000000000000000000.log, .index, .timeindex, ...

Batches are copied as they are, without the prefix in front of each; internal batches are left out.
Everything is written to a directory beside the result, which is renamed when it is complete.

Invariants
    storage.inspect.X1  a batch that is damaged is reported and not written
    storage.inspect.X2  nothing that exists is written over; the result is durable and complete
        when it has its name
    storage.inspect.X3  the bytes of a batch are those that were stored, or differ in the leader
        epoch alone, which Kafka's checksum does not cover

Not here: the content of indexes (kafka_segment.py), the command (cli/log_export.py).
"""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from quipu.model.errors import QuipuError
from quipu.runtime.disks.disk import Buffer, Disk, File
from quipu.storage.inspect.continuity import Finding, FindingKind
from quipu.storage.inspect.examine import Examination, ExaminedBatch, Seen, Selection
from quipu.storage.inspect.files import LogFiles
from quipu.storage.inspect.kafka_segment import EPOCHS_NAME, KafkaSegment, LeaderEpochs
from quipu.storage.recovery import first_checkpoint
from quipu.wire.stored_batch import PREFIX_SIZE, StoredHeader

PARTIAL_SUFFIX: Final = ".partial"
WRITE_BUFFERS_MAX: Final = 256  # that are written together, ...
WRITE_SIZE_MAX: Final = 4 << 20  # ... and bytes, about
_EPOCH: Final = Struct(">i")
_EPOCH_POSITION: Final = 12  # in Kafka's header of a batch


class CannotExport(QuipuError):
    """Why a log cannot be exported; nothing was written."""


@dataclass(slots=True)
class Exported:
    """What was written of one log."""

    name: str
    directory: str  # empty if there was nothing to write
    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    start_offset: int | None = None
    end_offset: int | None = None
    damaged_batches: int = 0
    faults: int = 0  # because of which records may be missing


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRules:
    """What is written, and who is told of it."""

    selection: Selection
    leader_epoch: int | None = None  # of all batches; None: as they are
    on_fault: Callable[[Seen], None] = lambda _: None
    on_progress: Callable[[int], None] = lambda _: None  # bytes that were read so far


def partition_of(disk: Disk, log: LogFiles) -> LogFiles:
    """`log` under the name of its partition, also if it is a single file, whose name it had."""
    if log.entry:
        return log
    (segment,) = log.segments
    with suppress(QuipuError):  # what is wrong is shown when the segment is looked at
        first = first_checkpoint(disk, log.directory, [segment.first_log_offset or 0])
        if first is not None:
            return log._replace(name=first.name)
    return log._replace(name=log.name.split(".")[0])


def check_targets(disk: Disk, logs: list[LogFiles], directory: str) -> None:
    """Raise `CannotExport` if one of the results exists, or all would not fit on the disk."""
    names = [log.name for log in logs]
    for name in names:
        if names.count(name) > 1:
            raise CannotExport(f"{name}: there are several logs of this name: export one at a time")
        for path in (os.path.join(directory, name), os.path.join(directory, name + PARTIAL_SUFFIX)):
            if disk.exists(path):
                raise CannotExport(f"{path} exists, and is not written over: remove it, or export "
                                   "to another directory")
    needed = sum(disk.size(segment.path) for log in logs for segment in log.segments)
    free = disk.space(directory).usable
    if free < needed:
        raise CannotExport(f"{directory}: {free:,} bytes are free, up to {needed:,} are needed")


def export_log(disk: Disk, log: LogFiles, directory: str, rules: ExportRules) -> Exported:
    """Write one log to `directory`/NAME; raises if it cannot be written, and then removes it."""
    final = os.path.join(directory, log.name)
    partial = final + PARTIAL_SUFFIX
    result = Exported(log.name, final)
    disk.make_directory(partial)
    try:
        writer = _Writer(disk, partial, result, rules.leader_epoch)
        _copy(disk, log, writer, rules)
        writer.finish()
    except BaseException:
        with suppress(QuipuError):
            disk.remove_tree(partial)
        raise
    if result.batches:
        disk.rename(partial, final)  # storage.inspect.X2
    else:
        disk.remove_tree(partial)
        result.directory = ""
    disk.sync_directory(directory)
    return result


def _copy(disk: Disk, log: LogFiles, writer: "_Writer", rules: ExportRules) -> None:
    examination = Examination(disk, log, selection=rules.selection)
    result = writer.result
    for seen in examination:
        if any(map(_counts, seen.findings)):
            result.faults += sum(map(_counts, seen.findings))
            rules.on_fault(seen)
        if not isinstance(seen, ExaminedBatch):
            continue
        header = seen.batch.header
        rules.on_progress(examination.summary.bytes - len(seen.data) + seen.batch.position)
        if seen.batch.fault is not None:
            result.damaged_batches += 1  # storage.inspect.X1
        elif rules.selection.wants(header):
            writer.write(seen)
    rules.on_progress(examination.summary.bytes)


def _counts(finding: Finding) -> bool:
    """Whether records may be missing because of it; our own index is not exported."""
    return finding.is_fault and finding.kind is not FindingKind.INDEX


@dataclass(slots=True)
class _Writer:
    """Writes batches, and the files that belong to them."""

    disk: Disk
    directory: str
    result: Exported
    leader_epoch: int | None
    _source: str = ""  # the file that the last batch came from
    _segment: KafkaSegment | None = None
    _file: File | None = None
    _epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    _buffers: list[Buffer] = field(default_factory=list)
    _buffers_size: int = 0

    def write(self, seen: ExaminedBatch) -> None:
        header, position = seen.batch.header, seen.batch.position
        segment = self._segment
        if segment is None or seen.segment.path != self._source or not segment.has_room(header):
            segment = self._begin(header)
            self._source = seen.segment.path
        segment.add(header)
        self._epochs.add(self._epoch(header), header.base_offset)
        self._put(seen.data[position + PREFIX_SIZE : seen.batch.end])
        result = self.result
        result.batches += 1
        result.records += header.count
        if result.start_offset is None:
            result.start_offset = header.base_offset
        result.end_offset = header.next_offset

    def _epoch(self, header: StoredHeader) -> int:
        return header.leader_epoch if self.leader_epoch is None else self.leader_epoch

    def _put(self, batch: memoryview) -> None:
        if self.leader_epoch is None:
            self._buffers.append(batch)
        else:  # storage.inspect.X3
            self._buffers += (batch[:_EPOCH_POSITION], _EPOCH.pack(self.leader_epoch),
                              batch[_EPOCH_POSITION + _EPOCH.size :])
        self._buffers_size += len(batch)
        if len(self._buffers) >= WRITE_BUFFERS_MAX or self._buffers_size >= WRITE_SIZE_MAX:
            self._flush()

    def _flush(self) -> None:
        if self._buffers:
            assert self._file is not None
            self._file.append(self._buffers, self._buffers_size)
            self.result.bytes += self._buffers_size
            self._buffers, self._buffers_size = [], 0

    def _begin(self, header: StoredHeader) -> KafkaSegment:
        self._complete()
        self._segment = segment = KafkaSegment(header.base_offset)
        self._file = self.disk.open(self._path(f"{segment.name}.log"), create=True)
        self.result.segments += 1
        return segment

    def _complete(self) -> None:
        """Make the files of the last segment durable."""
        self._flush()
        segment, file = self._segment, self._file
        if segment is None or file is None:
            return
        assert file.size == segment.size, (segment.name, file.size, segment.size)
        file.sync()
        file.close()
        self._write(f"{segment.name}.index", segment.offset_index)
        self._write(f"{segment.name}.timeindex", segment.time_index())
        self._segment = self._file = None

    def finish(self) -> None:
        """Complete the last segment, and make the directory durable."""
        self._complete()
        self._write(EPOCHS_NAME, self._epochs.text())
        self.disk.sync_directory(self.directory)

    def _write(self, name: str, data: Buffer) -> None:
        file = self.disk.open(self._path(name), create=True)
        if len(data):
            file.append((data,), len(data))
        file.sync()
        file.close()

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, name)
