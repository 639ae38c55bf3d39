"""`quipu log show` of an object of diskless topics: every batch, receipts, and what is damaged.

An object has batches of many partitions, named by topic id; its batches have no offsets of their
own, which a commit assigns after the object is stored.  If the footer is damaged, the batches are
still found by walking their headers, but not which partitions they are of.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import typer

from quipu.cli.output import count, print_json, printable
from quipu.diskless.errors import CorruptObject
from quipu.diskless.objects.footer import HEADER_SIZE, MAGIC, NO_OFFSET, FooterBatch, ObjectFooter
from quipu.diskless.objects.reading import check_batch, footer_of, is_plausible
from quipu.diskless.objects.receipts import Receipt, duplicate_of
from quipu.model.errors import MalformedBytes, UnknownFormat
from quipu.runtime.disks.disk import Disk
from quipu.storage.inspect import render
from quipu.storage.inspect.examine import Selection
from quipu.wire.record_batch import HEADER_SIZE as BATCH_HEADER_SIZE
from quipu.wire.record_batch import BatchHeader, body_crc, decode_records, parse_header

_ROW: Final = "{:<48} {:>12} {:>7} {:>9} {:<6} {:<18} {:<23} {:>11}  {}"
_HEADING: Final = _ROW.format("TOPIC ID - PARTITION", "OFFSET", "RECORDS", "SIZE", "CODEC",
                              "PRODUCER", "TIME (UTC)", "POSITION", "CHECKSUM")


def is_object_file(path: str) -> bool:
    """Whether a file begins or ends as an object does."""
    try:
        with Path(path).open("rb") as file:
            if file.read(len(MAGIC)) == MAGIC:
                return True
            file.seek(-len(MAGIC), 2)
            return file.read() == MAGIC
    except OSError:
        return False


class ObjectBatch(NamedTuple):
    """A batch in an object, and what is wrong with it."""

    position: int
    header: BatchHeader | None
    data: memoryview
    said: FooterBatch | None  # by the footer
    fault: str | None
    is_verified: bool

    @property
    def checksum(self) -> str:
        if self.fault is not None:
            return "BAD"
        return "ok" if self.is_verified else "not read"


class ObjectPrinter:
    """Shows one object; counts faults."""

    def __init__(
        self, path: str, *, as_json: bool, with_records: bool, summary_only: bool, verify: bool,
        selection: Selection,
    ) -> None:
        self._name = Path(path).name
        self._path = path
        self._as_json = as_json
        self._with_records = with_records
        self._summary_only = summary_only
        self._verify = verify
        self._selection = selection
        self._is_terminal = sys.stdout.isatty()
        self.faults = 0

    def show(self, disk: Disk) -> None:
        """Print the object; raises `UnknownFormat` if a later version wrote it."""
        data = disk.map(self._path)
        try:
            footer: ObjectFooter | None = footer_of(data)
            damage = None
        except CorruptObject as error:
            footer, damage = None, str(error)
        if not self._as_json and not self._summary_only:
            print(f"{printable(self._name)}: an object of diskless topics")
            print(_HEADING)
        batches = records = 0
        for batch in _walk(data, footer, verify=self._verify):
            batches += 1
            records += batch.header.count if batch.header is not None else 0
            self._show_batch(batch)
        if damage is not None:
            self._fault(f"footer: {damage}", {"kind": "damage", "fault": damage})
        elif footer is not None and not self._summary_only:
            self._show_receipts(footer)
        self._show_summary(footer, batches, records, len(data))

    # -- batches

    def _show_batch(self, batch: ObjectBatch) -> None:
        if batch.header is not None and not self._is_wanted(batch.header) and not batch.fault:
            return
        if not self._summary_only or batch.fault is not None:
            if self._as_json:
                print_json({"object": self._name, **_batch_json(batch)})
            else:
                print(_batch_row(batch))
        if batch.fault is not None:
            self._fault(batch.fault, None)
        if self._with_records and not self._summary_only and batch.header is not None:
            self._show_records(batch)

    def _is_wanted(self, header: BatchHeader) -> bool:
        start, end = self._selection.time_start_ms, self._selection.time_end_ms
        return ((start is None or header.max_timestamp >= start)
                and (end is None or header.base_timestamp < end))

    def _show_records(self, batch: ObjectBatch) -> None:
        base = batch.said.base_offset if batch.said is not None else NO_OFFSET
        damage: render.Json = {} if batch.fault is None else {"fault": batch.fault}
        try:
            for number, record in enumerate(
                    decode_records(batch.data, size_max=render.RECORDS_SIZE_MAX)):
                out: render.Json = {"kind": "record"}
                if base != NO_OFFSET:
                    out["offset"] = base + number
                out["timestamp"] = record.timestamp
                out |= render.bytes_json("key", record.key)
                out |= render.bytes_json("value", record.value)
                if record.headers:
                    out["headers"] = [{"name": name, **render.bytes_json("value", value)}
                                      for name, value in record.headers]
                self._print({**out, **damage})
        except MalformedBytes as error:
            self._print({"kind": "record", "error": str(error), **damage})
            self.faults += batch.fault is None

    def _print(self, record: render.Json) -> None:
        if self._as_json:
            print_json({"object": self._name, **record})
        else:
            print(render.record_line(record))

    def _fault(self, text: str, value: render.Json | None) -> None:
        self.faults += 1
        if self._as_json:
            if value is not None:
                print_json({"object": self._name, **value})
            return
        line = f"  ! {printable(self._name)}: {printable(text)}"
        print(typer.style(line, fg="red") if self._is_terminal else line)

    # -- the rest

    def _show_receipts(self, footer: ObjectFooter) -> None:
        for receipt in footer.receipts:
            if self._as_json:
                print_json({"object": self._name, "kind": "receipt", "for": receipt.name.key,
                            "offsets": list(receipt.offsets)})
            else:
                print(f"  receipt for {receipt.name.key}: {_receipt_text(receipt)}")
        for note in footer.notes:
            if self._as_json:
                print_json({"object": self._name, "kind": "note", "log": str(note.log),
                            "log_start": note.log_start_offset,
                            "high_watermark": note.high_watermark})
            else:
                print(f"  note: {note.log} has offsets {note.log_start_offset} to "
                      f"{note.high_watermark}")

    def _show_summary(
        self, footer: ObjectFooter | None, batches: int, records: int, size: int
    ) -> None:
        logs = len({batch.coordinates.log for batch in footer.batches}) if footer else None
        if self._as_json:
            name = footer.name if footer is not None else None
            print_json({
                "object": self._name, "kind": "summary", "batches": batches, "records": records,
                "bytes": size, "partitions": logs,
                "node": name.node_id if name is not None else None,
                "writer": str(name.writer) if name is not None else None,
                "sequence": name.sequence if name is not None else None,
                "created": footer.created_ms if footer is not None else None,
                "receipts": len(footer.receipts) if footer is not None else None,
                "faults": self.faults})
            return
        print()
        text = f"{count(size, 'byte')}, {batches:,} batch{'' if batches == 1 else 'es'}, "
        text += f"{count(records, 'record')}, {count(self.faults, 'fault')}"
        if footer is not None:
            name = footer.name
            text += (f"; {count(logs or 0, 'partition')}; written by node {name.node_id} at "
                     f"{render.time_text(footer.created_ms)} as object {name.sequence} of writer "
                     f"{name.writer}")
        print(f"{printable(self._name)}: {text}")


def _walk(
    data: memoryview, footer: ObjectFooter | None, *, verify: bool
) -> Iterator[ObjectBatch]:
    """The batches by the footer; without one, those whose headers are plausible."""
    if footer is not None:
        for said in footer.batches:
            place = said.coordinates
            view = data[place.position : place.position + place.size]
            yield _examined(view, place.position, said, verify=verify)
        return
    position = HEADER_SIZE
    while len(data) - position >= BATCH_HEADER_SIZE:
        header = parse_header(data, position)
        if not is_plausible(header) or position + header.size > len(data):
            return
        view = data[position : position + header.size]
        fault = "bad checksum" if verify and body_crc(view) != header.crc else None
        yield ObjectBatch(position, header, view, None, fault, verify)
        position += header.size


def _examined(
    view: memoryview, position: int, said: FooterBatch, *, verify: bool
) -> ObjectBatch:
    header, fault = parse_header(view), None
    try:
        if verify:
            check_batch(view, said)
        elif not is_plausible(header) or header.size != len(view):
            raise CorruptObject(f"the batch at {position} has a damaged header")
    except CorruptObject as error:
        fault = str(error)
    readable = header if is_plausible(header) and header.size == len(view) else None
    return ObjectBatch(position, readable, view, said, fault, verify)


def _batch_row(batch: ObjectBatch) -> str:
    said, header = batch.said, batch.header
    offset = said.base_offset if said is not None and said.base_offset != NO_OFFSET else "-"
    log = str(said.coordinates.log) if said is not None else "?"
    if header is None:
        return _ROW.format(log, offset, "?", len(batch.data), "?", "?", "?", batch.position,
                           batch.checksum)
    producer = "-"
    if header.producer_id >= 0:
        producer = f"{header.producer_id}/{header.producer_epoch}/{header.base_sequence}"
    return _ROW.format(
        log, offset, header.count, len(batch.data), render.codec_name(header), producer,
        render.time_text(header.max_timestamp), batch.position, batch.checksum)


def _batch_json(batch: ObjectBatch) -> render.Json:
    said, header = batch.said, batch.header
    log = said.coordinates.log if said is not None else None
    known: render.Json = {} if header is None else {
        "records": header.count, "compression": render.codec_name(header),
        "timestamp_type": header.timestamp_type.name.lower(),
        "base_timestamp": header.base_timestamp, "max_timestamp": header.max_timestamp,
        "producer_id": header.producer_id, "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence, "crc": f"{header.crc:#010x}"}
    return {
        "kind": "batch", "topic_id": str(log.topic_id) if log is not None else None,
        "partition": log.partition if log is not None else None, "position": batch.position,
        "size": len(batch.data),
        "offset": said.base_offset if said is not None and said.base_offset != NO_OFFSET else None,
        **known, "checksum": batch.checksum, "findings": [batch.fault] if batch.fault else []}


def _receipt_text(receipt: Receipt) -> str:
    words = []
    for number in receipt.offsets:
        first = duplicate_of(number)
        words.append(f"duplicate of {first}" if first is not None
                     else "refused" if number < 0 else str(number))
    return ", ".join(words)


def show_object(
    disk: Disk, path: str, *, as_json: bool, with_records: bool, summary_only: bool, verify: bool,
    selection: Selection,
) -> int:
    """Show an object's file; returns the number of faults."""
    if selection.offset_start is not None or selection.offset_end is not None or selection.types:
        raise typer.BadParameter(
            f"{path} is an object of diskless topics: its batches are of many partitions, have no "
            "offsets of their own and one type; select by time only")
    printer = ObjectPrinter(path, as_json=as_json, with_records=with_records,
                            summary_only=summary_only, verify=verify, selection=selection)
    try:
        printer.show(disk)
    except UnknownFormat as error:
        raise typer.BadParameter(f"{path}: {error}") from None
    return printer.faults
