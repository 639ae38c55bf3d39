"""From a directory to a log: after a clean shutdown, after a crash, or for the first time.

After a clean shutdown nothing is scanned.  Otherwise every segment without a sound index is: the
active one, and rarely the one before it.  What a scan finds wrong is judged by one number, the
flushed mark, known from the node log, from the checkpoints that this node wrote into the log
(storage.C1), and from the order in which segments are sealed (storage.R1):

    at or after the mark   a torn tail: it was never acknowledged.  The log is cut there, and the
                           bytes are kept beside it as <base>.torn-<ms>
    below the mark         damage: `CorruptLog`.  Nothing is changed; the operator decides
    a batch with an intact checksum that this version cannot read is never cut either

Not here: repair on an operator's order (inspect/), the scan itself (segments/scan.py).
"""

import logging
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from quipu.model.batch_types import CHECKPOINT
from quipu.model.errors import (
    Code,
    CorruptLog,
    ErrorKind,
    MalformedBytes,
    QuipuError,
    UnknownFormat,
)
from quipu.model.ids import Offset
from quipu.runtime.disks.disk import Disk, File, NotFound
from quipu.storage.config import LogConfig
from quipu.storage.derived.checkpoint import (
    Checkpoint,
    DerivedState,
    decode_checkpoint,
    unpack_tiered,
)
from quipu.storage.derived.epochs import EpochHistory
from quipu.storage.derived.producers import ProducerStates
from quipu.storage.log_directory import CleanShutdown, LogDirectory, RecoveryPoint
from quipu.storage.segments.scan import Scan, Scanned
from quipu.storage.segments.segment import LOG_SUFFIX, NAME_DIGITS, Segment, segment_path
from quipu.wire.scan_run import Run
from quipu.wire.stored_batch import STORED_HEADER_SIZE, Fault, check_body, check_header

UNFINISHED_SUFFIX: Final = ".new"  # was to replace another file: without it nothing is lost
DELETED_SUFFIX: Final = ".deleted"  # was to be removed

_log = logging.getLogger(__name__)


class Recovered(NamedTuple):
    """A log's segments, the last with its file open, and its state at the end of them."""

    segments: list[Segment]  # empty: there is no log yet
    state: DerivedState
    end_offset: int
    log_end: int
    was_scanned: bool

    def release(self) -> None:
        """Close the files: the log is not opened after all."""
        for segment in self.segments:
            segment.close()


def recover(
    directory: LogDirectory, config: LogConfig, recovery: RecoveryPoint, now_ms: int
) -> Recovered:
    """Read the log in `directory`; raises `QuipuError`, and then changes nothing.

    Whatever goes wrong is an error that a log can keep as its failure: mostly `CorruptLog` or
    `DiskError`.
    """
    try:
        return _recover(directory, config, recovery, now_ms)
    except QuipuError:
        raise
    except Exception as error:
        raise cannot_open(directory, error) from error


def cannot_open(directory: LogDirectory, error: Exception) -> QuipuError:
    """The failure of a log that cannot be opened for an unexpected reason."""
    return QuipuError(f"{directory.name}: {directory.path} cannot be opened: {error!r}",
                      code=Code.KAFKA_STORAGE_ERROR, kind=ErrorKind.CORRUPT)


def _recover(
    directory: LogDirectory, config: LogConfig, recovery: RecoveryPoint, now_ms: int
) -> Recovered:
    segments = _find_segments(directory, config)
    if not segments:
        if recovery.flushed_log > 0:
            raise CorruptLog(f"{directory.name}: all segments are gone; log offsets up to "
                             f"{recovery.flushed_log} were durable: restore {directory.path}")
        return Recovered([], DerivedState(), 0, 0, was_scanned=False)
    if recovery.clean is not None:
        resumed = _resume(directory, segments, recovery.clean)
        if resumed is not None:
            return resumed
    return _Recovery(directory, segments, recovery.flushed_log, now_ms).run()


def segment_bases(names: list[str]) -> list[int]:
    """The base log offsets of the segments among these file names, in order."""
    return sorted(int(name[:NAME_DIGITS]) for name in names
                  if name.endswith(LOG_SUFFIX) and len(name) == NAME_DIGITS + len(LOG_SUFFIX)
                  and name[:NAME_DIGITS].isdecimal())


def first_checkpoint(disk: Disk, directory: str, bases: list[int]) -> Checkpoint | None:
    """The checkpoint of the first of these segments that has a sound one."""
    for base_log in bases:
        path = segment_path(directory, base_log)
        data = memoryview(disk.read(path, STORED_HEADER_SIZE))
        header = check_header(data, end=disk.size(path))
        if isinstance(header, Fault) or header.batch_type != CHECKPOINT:
            continue
        data = memoryview(disk.read(path, header.size))
        if check_body(data, 0, header) is None:
            with suppress(MalformedBytes):  # reported when the segment is scanned
                return decode_checkpoint(data)
    return None


def _find_segments(directory: LogDirectory, config: LogConfig) -> list[Segment]:
    try:
        names = list(directory.disk.list(directory.path))
    except NotFound:
        return []
    for name in names:
        if name.endswith((UNFINISHED_SUFFIX, DELETED_SUFFIX)):
            with suppress(NotFound):  # a removal in the background may be faster
                directory.disk.remove(f"{directory.path}/{name}")
    segments = []
    for base_log in segment_bases(names):
        path = segment_path(directory.path, base_log)
        segment = Segment(directory.disk, directory.open_segments, path, base_log)
        segment.index_interval = config.index_interval_bytes
        segments.append(segment)
    return segments


def _resume(
    directory: LogDirectory, segments: list[Segment], clean: CleanShutdown
) -> Recovered | None:
    """The log as it was closed; None if its files are not those."""
    *complete, active = segments
    if not active.load_summary(directory.disk.size(active.path)):
        return None
    if (active.base_log, active.size, active.end_offset, active.log_end) != (
            clean.base_log, clean.active_size, clean.end_offset, clean.log_end):
        return None
    for segment in complete:
        if not segment.load_summary(directory.disk.size(segment.path)):
            return None
    for number in range(len(segments)):
        _drop_superseded(directory, segments, number)
    _check_chain(directory, segments)
    active.resume_index()
    active.file = directory.disk.open(active.path)
    active.trust_from_here()
    stated = clean.stated_start_offset
    state = DerivedState(Offset(stated if stated >= 0 else clean.log_start_offset),
                         EpochHistory.decode(clean.epochs), ProducerStates.decode(clean.producers),
                         unpack_tiered(clean.tiered))
    assert segments[-1] is active, directory.name
    assert active.log_end == clean.log_end, directory.name
    return Recovered(segments, state, clean.end_offset, clean.log_end, was_scanned=False)


def _drop_superseded(directory: LogDirectory, segments: list[Segment], number: int) -> None:
    """Remove the segments that lie within segment `number`: it was compacted, and replaces them.

    Only if another segment begins where it ends (storage.KS1).
    """
    if number >= len(segments) - 1:
        return
    end = segments[number].log_end
    within = [segment for segment in segments[number + 1 :] if segment.base_log < end]
    after = number + 1 + len(within)
    if not within or after == len(segments) or segments[after].base_log != end:
        return
    for segment in within:
        _log.info("%s: %s was merged into %s", directory.name, segment.path,
                  segments[number].path)
        for path in (segment.path, segment.index_path):
            with suppress(NotFound):
                directory.disk.remove(path)
    del segments[number + 1 : after]


def _check_chain(directory: LogDirectory, segments: list[Segment]) -> None:
    """Each segment begins where the one before it ends (storage.S1)."""
    for segment, after in pairwise(segments):
        if segment.log_end != after.base_log:
            raise CorruptLog(
                f"{directory.name}: {segment.path} ends at log offset {segment.log_end}, the next "
                f"segment begins at {after.base_log}: a file is missing or was exchanged")


@dataclass(slots=True)
class _Recovery:
    """One log that was not closed."""

    directory: LogDirectory
    segments: list[Segment]
    flushed: int
    now_ms: int
    state: DerivedState = field(default_factory=DerivedState)

    def run(self) -> Recovered:
        assert self.segments, self.directory.name
        self.flushed = max(self.flushed, self._flushed_by_files())
        number = 0
        while number < len(self.segments) - 1:
            segment = self.segments[number]
            if not segment.load_summary(self.directory.disk.size(segment.path)):
                if self._seal(segment, number):
                    self._set_aside_from(number + 1)
                    break
            else:
                _drop_superseded(self.directory, self.segments, number)
                _check_chain(self.directory, self.segments[number : number + 2])
            number += 1
        assert self.segments, self.directory.name  # the first one is never set aside here
        return self._open_active()

    def _flushed_by_files(self) -> int:
        """The flushed mark that follows from the files alone."""
        last = self.segments[-2:]
        mark = last[0].base_log if len(last) == 2 else 0  # storage.R1
        for segment in last:
            found = first_checkpoint(self.directory.disk, self.directory.path, [segment.base_log])
            if found is not None and found.is_of(self.directory.node_id):
                mark = max(mark, found.flushed)
        return mark

    def _seal(self, segment: Segment, number: int) -> bool:
        """Check a complete segment without a sound index; True if the log must end in it."""
        file = self.directory.disk.open(segment.path)
        try:
            scan = self._scan(segment, file)
            if scan.fault is None:
                _drop_superseded(self.directory, self.segments, number)
            after = self.segments[number + 1]
            if scan.fault is None and scan.log_end == after.base_log:
                file.sync()
                segment.file = file
                segment.write_index()
                segment.close()
                return False
            why = scan.fault or f"it ends before {after.path} begins"
            self._judge(segment, scan, why)
            return True
        finally:
            file.close()

    def _judge(self, segment: Segment, scan: Scan, why: str) -> None:
        """Raise if what is wrong is not a torn tail."""
        where = f"{segment.path}: {why}, at position {scan.position}, log offset {scan.log_end}"
        if not scan.is_damage:
            raise UnknownFormat(f"{self.directory.name}: {where}; it was written like that: use "
                                "the version that wrote it, or report the bug")
        if scan.log_end < self.flushed:
            raise CorruptLog(f"{self.directory.name}: {where}; everything below {self.flushed} was "
                             "durable, so this is damage and not a torn tail: nothing was cut; "
                             "see `quipu log show` and `quipu log repair`")

    def _scan(self, segment: Segment, file: File) -> Scan:
        """Check a segment and set the state to what it is at its end."""
        segment.file = file
        try:
            return segment.scan(file, self._visit)
        except QuipuError as error:
            raise CorruptLog(f"{self.directory.name}: {segment.path}: {error}") from error
        finally:
            segment.file = None

    def _visit(self, batch: Scanned | Run) -> None:
        if isinstance(batch, Run):
            self.state.replay_run(batch, self.now_ms)
            return
        if batch.position > 0:
            self.state.replay(batch.header, batch.stored, self.now_ms)
            return
        if batch.header.batch_type != CHECKPOINT:
            raise MalformedBytes("does not begin with a checkpoint")
        self.state = decode_checkpoint(batch.stored).state

    def _open_active(self) -> Recovered:
        """Scan the last segment and cut a torn tail; what is left may not be durable yet."""
        segment = self.segments[-1]
        file = self.directory.disk.open(segment.path)
        try:
            scan = self._scan(segment, file)
            if scan.position == 0:  # not even its checkpoint was written
                self._judge(segment, scan, scan.fault or "it is empty")
                file.close()
                self._set_aside_from(len(self.segments) - 1)
                if self.segments:
                    return self._open_active()
                return Recovered([], DerivedState(), 0, 0, was_scanned=True)
            if scan.fault is not None:
                self._judge(segment, scan, scan.fault)
                self._cut(segment, file, scan)
            if scan.log_end < self.flushed:
                raise CorruptLog(f"{self.directory.name}: ends at log offset {scan.log_end}, but "
                                 f"{self.flushed} were durable: a file was cut or is missing")
        except QuipuError:
            file.close()
            raise
        self._remove_index(segment)
        segment.file = file
        segment.trust()
        assert segment.log_end >= self.flushed, (self.directory.name, self.flushed)
        assert file.size == scan.position, (self.directory.name, file.size)  # what is torn is cut
        return Recovered(self.segments, self.state, segment.end_offset, segment.log_end,
                         was_scanned=True)

    def _cut(self, segment: Segment, file: File, scan: Scan) -> None:
        """Cut a torn tail off the last segment, and keep its bytes in a file beside it."""
        assert 0 < scan.position <= file.size, (segment.path, scan.position)
        assert scan.log_end >= self.flushed, (segment.path, self.flushed)  # never what was flushed
        kept = f"{segment.path.removesuffix(LOG_SUFFIX)}.torn-{self.now_ms}"
        _log.warning("%s: torn tail: %s at position %d of %s; %d bytes cut and kept in %s",
                     self.directory.name, scan.fault, scan.position, segment.path,
                     file.size - scan.position, kept)
        self.directory.disk.copy(segment.path, kept, start=scan.position, end=file.size)
        file.truncate(scan.position)
        file.sync()

    def _remove_index(self, segment: Segment) -> None:
        """Only a sealed segment has one (storage.S3)."""
        with suppress(NotFound):
            self.directory.disk.remove(segment.index_path)

    def _set_aside_from(self, number: int) -> None:
        """Rename the segments from `number` on: the log ends before them."""
        assert 0 <= number < len(self.segments), (self.directory.name, number)
        for segment in reversed(self.segments[number:]):
            kept = f"{segment.path.removesuffix(LOG_SUFFIX)}.torn-{self.now_ms}"
            _log.warning("%s: torn tail: all of %s, kept as %s", self.directory.name, segment.path,
                         kept)
            self._remove_index(segment)
            self.directory.disk.rename(segment.path, kept)
            segment.close()
        del self.segments[number:]
        assert len(self.segments) == number, self.directory.name
