"""From a directory to a log: after a clean stop, after a crash, or for the first time.

After a clean stop nothing is scanned.  Otherwise every segment without a sound index is: the
active one, and rarely the one before it.  What a scan finds wrong is judged by one number, the
flushed mark, known from the node's memory, from the checkpoints that this node wrote into the log
(C1), and from the order in which segments are sealed (R1):

    at or after the mark   a torn tail: nobody was promised it.  The log is cut there, and the
                           bytes are kept beside it as <base>.torn-<ms>
    below the mark         damage: `CorruptLog`.  Nothing is changed; the operator decides
    a batch with an intact checksum that this version cannot read is never cut either

Not here: repair on an operator's order (inspect/), the scan itself (scan.py).
"""

import logging
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from quipu.model.batch_types import CHECKPOINT
from quipu.model.errors import CorruptLog, MalformedBytes, QuipuError, UnknownFormat
from quipu.model.ids import Offset
from quipu.runtime.disk import Disk, File, NotFound
from quipu.storage.checkpoint import Checkpoint, LogState, decode_checkpoint
from quipu.storage.config import LogConfig
from quipu.storage.epochs import EpochHistory
from quipu.storage.place import CleanStop, Memory, Place
from quipu.storage.producers import ProducerStates
from quipu.storage.scan import Scan, Scanned
from quipu.storage.segment import LOG_SUFFIX, NAME_DIGITS, Segment, segment_path
from quipu.wire.scan_run import Run
from quipu.wire.stored_batch import STORED_HEADER_SIZE, Fault, check_body, check_header

UNFINISHED_SUFFIX: Final = ".new"  # was to replace another file: without it nothing is lost
DELETED_SUFFIX: Final = ".deleted"  # was to be removed

_log = logging.getLogger(__name__)


class Recovered(NamedTuple):
    """A log's segments, the last with its file open, and its state at the end of them."""

    segments: list[Segment]  # empty: there is no log yet
    state: LogState
    end_offset: int
    log_end: int
    was_scanned: bool

    def release(self) -> None:
        """Let go of the files: nobody goes on with them."""
        for segment in self.segments:
            segment.close()


def recover(place: Place, config: LogConfig, memory: Memory, now_ms: int) -> Recovered:
    """Read the log at `place`; raises `CorruptLog` or `DiskError` and then changes nothing."""
    segments = _find_segments(place, config)
    if not segments:
        if memory.flushed > 0:
            raise CorruptLog(f"{place.name}: all segments are gone; log offsets up to "
                             f"{memory.flushed} were durable: restore {place.directory}")
        return Recovered([], LogState(), 0, 0, was_scanned=False)
    if memory.clean is not None and (found := _resume(place, segments, memory.clean)) is not None:
        return found
    return _Recovery(place, segments, memory.flushed, now_ms).run()


def segment_bases(names: list[str]) -> list[int]:
    """The first log offsets that the names of segment files tell, in order."""
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
            with suppress(MalformedBytes):  # told when the segment is scanned
                return decode_checkpoint(data)
    return None


def _find_segments(place: Place, config: LogConfig) -> list[Segment]:
    try:
        names = list(place.disk.list(place.directory))
    except NotFound:
        return []
    for name in names:
        if name.endswith((UNFINISHED_SUFFIX, DELETED_SUFFIX)):
            with suppress(NotFound):  # a removal in the background may be faster
                place.disk.remove(f"{place.directory}/{name}")
    segments = []
    for base_log in segment_bases(names):
        path = segment_path(place.directory, base_log)
        segment = Segment(place.disk, place.opened, path, base_log)
        segment.index_interval = config.index_interval_bytes
        segments.append(segment)
    return segments


def _resume(place: Place, segments: list[Segment], clean: CleanStop) -> Recovered | None:
    """The log as it was closed; None if its files are not those."""
    *complete, active = segments
    if not active.load_summary(place.disk.size(active.path)):
        return None
    if (active.base_log, active.size, active.end_offset, active.log_end) != (
            clean.base_log, clean.active_size, clean.end_offset, clean.log_end):
        return None
    for segment in complete:
        if not segment.load_summary(place.disk.size(segment.path)):
            return None
    _check_chain(place, segments)
    active.resume_index()
    active.file = place.disk.open(active.path)
    active.trust_from_here()
    state = LogState(Offset(clean.log_start_offset), EpochHistory.decode(clean.epochs),
                     ProducerStates.decode(clean.producers))
    return Recovered(segments, state, clean.end_offset, clean.log_end, was_scanned=False)


def _check_chain(place: Place, segments: list[Segment]) -> None:
    """Each segment begins where the one before it ends (S1)."""
    for segment, after in pairwise(segments):
        if segment.log_end != after.base_log:
            raise CorruptLog(
                f"{place.name}: {segment.path} ends at log offset {segment.log_end}, the next "
                f"segment begins at {after.base_log}: a file is missing or was exchanged")


@dataclass(slots=True)
class _Recovery:
    """One log that was not closed."""

    place: Place
    segments: list[Segment]
    flushed: int
    now_ms: int
    state: LogState = field(default_factory=LogState)

    def run(self) -> Recovered:
        self.flushed = max(self.flushed, self._flushed_by_files())
        number = 0
        while number < len(self.segments) - 1:
            segment, after = self.segments[number], self.segments[number + 1]
            if not segment.load_summary(self.place.disk.size(segment.path)):
                if self._seal(segment, after):
                    self._set_aside_from(number + 1)
                    break
            elif segment.log_end != after.base_log:
                _check_chain(self.place, [segment, after])
            number += 1
        return self._open_active()

    def _flushed_by_files(self) -> int:
        """The mark that the files themselves tell."""
        last = self.segments[-2:]
        mark = last[0].base_log if len(last) == 2 else 0  # R1
        for segment in last:
            found = first_checkpoint(self.place.disk, self.place.directory, [segment.base_log])
            if found is not None and found.is_of(self.place.node_id):
                mark = max(mark, found.flushed)
        return mark

    def _seal(self, segment: Segment, after: Segment) -> bool:
        """Check a complete segment without a sound index; True if the log must end in it."""
        file = self.place.disk.open(segment.path)
        try:
            scan = self._scan(segment, file)
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
            raise UnknownFormat(f"{self.place.name}: {where}; it was written like that: use the "
                                "version that wrote it, or report the bug")
        if scan.log_end < self.flushed:
            raise CorruptLog(f"{self.place.name}: {where}; everything below {self.flushed} was "
                             "durable, so this is damage and not a torn tail: nothing was cut; "
                             "see `quipu log show` and `quipu log repair`")

    def _scan(self, segment: Segment, file: File) -> Scan:
        """Check a segment and set the state to what it is at its end."""
        segment.file = file
        try:
            return segment.scan(file, self._visit)
        except QuipuError as error:
            raise CorruptLog(f"{self.place.name}: {segment.path}: {error}") from error
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
        file = self.place.disk.open(segment.path)
        try:
            scan = self._scan(segment, file)
            if scan.position == 0:  # not even its checkpoint was written
                self._judge(segment, scan, scan.fault or "it is empty")
                file.close()
                self._set_aside_from(len(self.segments) - 1)
                if self.segments:
                    return self._open_active()
                return Recovered([], LogState(), 0, 0, was_scanned=True)
            if scan.fault is not None:
                self._judge(segment, scan, scan.fault)
                self._cut(segment, file, scan)
            if scan.log_end < self.flushed:
                raise CorruptLog(f"{self.place.name}: ends at log offset {scan.log_end}, but "
                                 f"{self.flushed} were durable: a file was cut or is missing")
        except QuipuError:
            file.close()
            raise
        self._remove_index(segment)
        segment.file = file
        segment.trust()
        return Recovered(self.segments, self.state, segment.end_offset, segment.log_end,
                         was_scanned=True)

    def _cut(self, segment: Segment, file: File, scan: Scan) -> None:
        kept = f"{segment.path.removesuffix(LOG_SUFFIX)}.torn-{self.now_ms}"
        _log.warning("%s: torn tail: %s at position %d of %s; %d bytes cut and kept in %s",
                     self.place.name, scan.fault, scan.position, segment.path,
                     file.size - scan.position, kept)
        self.place.disk.copy(segment.path, kept, start=scan.position, end=file.size)
        file.truncate(scan.position)
        file.sync()

    def _remove_index(self, segment: Segment) -> None:
        """Only a sealed segment has one (S3)."""
        with suppress(NotFound):
            self.place.disk.remove(segment.index_path)

    def _set_aside_from(self, number: int) -> None:
        """The log ends before these segments: rename them."""
        for segment in reversed(self.segments[number:]):
            kept = f"{segment.path.removesuffix(LOG_SUFFIX)}.torn-{self.now_ms}"
            _log.warning("%s: torn tail: all of %s, kept as %s", self.place.name, segment.path,
                         kept)
            self._remove_index(segment)
            self.place.disk.rename(segment.path, kept)
            segment.close()
        del self.segments[number:]
