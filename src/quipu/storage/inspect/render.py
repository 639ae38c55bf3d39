"""What was seen in a log, as lines of text for people and as JSON objects for programs.

Rows have fixed widths, so that they can be printed while the log is still being read.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

from quipu.model.batch_types import CHECKPOINT, DATA, LOG_START, NODE, TIERED, describe
from quipu.model.errors import MalformedBytes
from quipu.storage.derived.checkpoint import decode_checkpoint, decode_log_start, decode_tiered
from quipu.storage.inspect.continuity import Finding, FindingKind
from quipu.storage.inspect.examine import (
    EVERYTHING,
    ExaminedBatch,
    LogSummary,
    SeenDamage,
    SeenFile,
    Selection,
    file_name,
)
from quipu.storage.inspect.files import LogFiles
from quipu.storage.inspect.marks import flushed_mark, log_name
from quipu.storage.inspect.repair import RepairPlan
from quipu.wire.compression import Compression
from quipu.wire.record_batch import BatchHeader, Record, decode_records
from quipu.wire.stored_batch import PREFIX_SIZE, Fault, StoredHeader, check_body, kafka_batch

RECORDS_SIZE_MAX: Final = 128 << 20  # decompressed bytes of one batch; above, it is not decoded
TEXT_SIZE_MAX: Final = 120  # characters of a key or value in a table

Json = dict[str, object]
Decoder = Callable[[memoryview], list[Json]]  # a stored batch, as what its records mean

_ROW: Final = ("{:>12} {:>12} {:<13} {:>5} {:>7} {:>9} {:<6} {:<18} {:<23} {:>11}  {}")
HEADING: Final = _ROW.format("OFFSET", "LOG OFFSET", "TYPE", "EPOCH", "RECORDS", "SIZE", "CODEC",
                             "PRODUCER", "TIME (UTC)", "POSITION", "CHECKSUM")


# --- batches ----------------------------------------------------------------------------------


def batch_row(seen: ExaminedBatch) -> str:
    """One line; findings are printed below it."""
    header = seen.batch.header
    producer = "-"
    if header.producer_id >= 0:
        producer = f"{header.producer_id}/{header.producer_epoch}/{header.base_sequence}"
    return _ROW.format(
        header.base_offset, header.log_offset, describe(header.batch_type), header.leader_epoch,
        header.count, header.size, codec_name(header), producer, time_text(header.max_timestamp),
        seen.batch.position, checksum_text(seen))


def batch_json(log: str, seen: ExaminedBatch) -> Json:
    header = seen.batch.header
    batch = header.batch
    is_data = header.batch_type == DATA
    return {
        "kind": "batch", "log": log, "file": file_name(seen.segment),
        "position": seen.batch.position, "size": header.size,
        "type": header.batch_type, "type_name": describe(header.batch_type),
        "offset": header.base_offset, "last_offset": header.next_offset - 1 if is_data else None,
        "log_offset": header.log_offset, "last_log_offset": header.next_log_offset - 1,
        "epoch": header.leader_epoch, "records": header.count, "compression": codec_name(header),
        "timestamp_type": batch.timestamp_type.name.lower(),
        "base_timestamp": header.base_timestamp, "max_timestamp": header.max_timestamp,
        "producer_id": header.producer_id, "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence, "transactional": batch.is_transactional,
        "control": batch.is_control, "crc": f"{header.crc:#010x}",
        "checksum": checksum_text(seen), "findings": finding_texts(seen.findings),
    }


def damage_json(log: str, seen: SeenDamage) -> Json:
    return {"kind": "damage", "log": log, "file": file_name(seen.segment),
            "position": seen.damage.position, "size": seen.damage.end - seen.damage.position,
            "fault": seen.damage.fault.value, "findings": finding_texts(seen.findings)}


def file_json(log: str, seen: SeenFile) -> Json:
    return {"kind": "file", "log": log, "file": file_name(seen.segment),
            "findings": finding_texts(seen.findings)}


def finding_texts(findings: list[Finding]) -> list[str]:
    return [str(finding) for finding in findings]


def codec_name(header: StoredHeader | BatchHeader) -> str:
    codec = header.attributes & 0x07
    return Compression(codec).name.lower() if codec <= Compression.ZSTD else f"codec {codec}"


def checksum_text(seen: ExaminedBatch) -> str:
    if seen.batch.fault is Fault.BODY_CRC:
        return "BAD"
    return "ok" if seen.is_verified else "not read"


def time_text(timestamp_ms: int) -> str:
    """ISO 8601 in UTC, to the millisecond."""
    if timestamp_ms < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{timestamp_ms % 1000:03d}"


# --- records ----------------------------------------------------------------------------------


def records(
    seen: ExaminedBatch, decoders: Mapping[int, Decoder], selection: Selection = EVERYTHING
) -> Iterator[Json]:
    """The records of a batch, or what they mean where there is a decoder for their type.

    Of data batches only the selected records.  Ends with an object that says why, under `error`,
    if the rest cannot be decoded.
    """
    batch = seen.batch
    stored = seen.data[batch.position : batch.end]
    decoder = decoders.get(batch.header.batch_type)
    fault = batch.fault or check_body(stored, 0, batch.header)  # bodies may be unread so far
    damage: Json = {} if fault is None else {"fault": fault.value}  # goes with every record
    try:
        if decoder is not None and fault is None:
            for meaning in decoder(stored):
                yield {"kind": "record", **meaning}
            return
        view = kafka_batch(seen.data, batch.position, batch.header)
        is_data = batch.header.batch_type == DATA
        for record in decode_records(view, size_max=RECORDS_SIZE_MAX):
            if not is_data or selection.wants_record(record.offset, record.timestamp):
                yield {**record_json(record, batch.header), **damage}
    except MalformedBytes as error:
        yield {"kind": "record", "error": str(error), **damage}


def record_json(record: Record, header: StoredHeader) -> Json:
    delta = record.offset - header.base_offset
    out: Json = {"kind": "record", "log_offset": header.log_offset + delta}
    if header.batch_type == DATA:
        out["offset"] = record.offset
    out["timestamp"] = record.timestamp
    out |= bytes_json("key", record.key)
    out |= bytes_json("value", record.value)
    if record.headers:
        out["headers"] = [{"name": name, **bytes_json("value", value)}
                          for name, value in record.headers]
    if header.batch.is_control and record.key is not None and len(record.key) == 4:
        out["marker"] = {0: "abort", 1: "commit"}.get(record.key[3], "unknown")
    return out


def record_line(record: Json) -> str:
    """One line of `name=value`, each cut to a length that can be read."""
    return "    " + "  ".join(
        f"{name}={_shown(value)}" for name, value in record.items() if name != "kind")


def bytes_json(name: str, value: bytes | None) -> Json:
    """Text where the bytes are text, else hexadecimal under a name that says so."""
    if value is None:
        return {name: None}
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return {f"{name}_hex": value.hex()}
    is_text = all(char.isprintable() or char in "\t\r\n" for char in text)
    return {name: text} if is_text else {f"{name}_hex": value.hex()}


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else "null" if value is None else str(value)
    if not text.isprintable():
        text = repr(text)[1:-1]
    if len(text) > TEXT_SIZE_MAX:
        return f"{text[:TEXT_SIZE_MAX]}... ({len(text)} characters)"
    return text


def _checkpoint(stored: memoryview) -> list[Json]:
    checkpoint = decode_checkpoint(stored)
    state = checkpoint.state
    shown: Json = {
        "log": checkpoint.name, "topic_id": str(checkpoint.topic_id),
        "log_start_offset": state.log_start_offset, "flushed_log_offset": checkpoint.flushed,
        "epochs": [list(entry) for entry in state.epochs.entries()],
        "producers": [info._asdict() for info in state.producers.infos()],
    }
    if state.tiered.offset >= 0:
        shown["tiered_offset"] = state.tiered.offset
    return [shown]


def _log_start(stored: memoryview) -> list[Json]:
    return [{"log_start_offset": decode_log_start(stored)}]


def _tiered(stored: memoryview) -> list[Json]:
    tiered = decode_tiered(stored)
    return [{"tiered_offset": tiered.offset, "leader_epoch": tiered.epoch}]


def _node(stored: memoryview) -> list[Json]:
    events: list[Json] = []
    for record in decode_records(stored[PREFIX_SIZE:], size_max=RECORDS_SIZE_MAX):
        name, flushed = log_name(record), flushed_mark(record)
        if name is None:
            events.append({"event": (record.key or b"").decode(errors="replace")})
        elif flushed is None:
            events.append({"log": name, "event": "deleted"})
        else:
            is_clean = any(header == "clean" for header, _ in record.headers)
            events.append({"log": name, "event": "closed" if is_clean else "flushed",
                         "flushed_log_offset": flushed})
    return events


STORAGE_DECODERS: Final[Mapping[int, Decoder]] = {
    CHECKPOINT: _checkpoint, LOG_START: _log_start, TIERED: _tiered, NODE: _node}


# --- summaries --------------------------------------------------------------------------------


def summary_json(summary: LogSummary) -> Json:
    return {
        "kind": "summary", "log": summary.name, "segments": summary.segments,
        "batches": summary.batches, "records": summary.records, "bytes": summary.bytes,
        "damaged_bytes": summary.damaged_bytes,
        "start_offset": summary.start_offset, "end_offset": summary.end_offset,
        "start_log_offset": summary.start_log_offset, "end_log_offset": summary.end_log_offset,
        "first_timestamp": summary.first_timestamp, "last_timestamp": summary.last_timestamp,
        "epoch": summary.last_epoch,
        "types": {name: {"batches": count.batches, "records": count.records, "bytes": count.bytes}
                  for name, count in sorted(summary.types.items())},
        "findings": dict(sorted(summary.findings.items())), "faults": summary.fault_count,
    }


def summary_row(summary: LogSummary) -> Json:
    """The same for a table: types and findings in words."""
    row = summary_json(summary)
    row["offsets"] = _range(summary.start_offset, summary.end_offset)
    row["log_offsets"] = _range(summary.start_log_offset, summary.end_log_offset)
    row["types"] = " ".join(f"{name}:{count.batches}"
                            for name, count in sorted(summary.types.items()))
    row["findings"] = ", ".join(f"{count} {kind}"
                                for kind, count in sorted(summary.findings.items()))
    return row


SUMMARY_COLUMNS: Final = ("log", "segments", "batches", "records", "bytes", "offsets",
                          "log_offsets", "epoch", "types", "faults", "findings")


def _range(start: int | None, end: int | None) -> str:
    return "" if start is None else f"[{start}, {end})"


def note_undecoded(record: Json, summary: LogSummary) -> None:
    """Count a batch whose checksum holds but whose records cannot be decoded."""
    if "error" in record:
        summary.note_findings([Finding(FindingKind.RECORDS, str(record["error"]))])


# --- repair -----------------------------------------------------------------------------------


def repair_json(log: LogFiles, plan: RepairPlan | None, kept: list[str] | None) -> Json:
    """`kept` are the files that hold what was cut; None if nothing was done yet."""
    if plan is None:
        return {"kind": "repair", "log": log.name, "done": False, "why": None}
    return {
        "kind": "repair", "log": log.name, "done": kept is not None, "why": str(plan.why),
        "file": file_name(plan.segment), "position": plan.position,
        "end_offset": plan.end_offset, "end_log_offset": plan.log_end,
        **{f"lost_{name}": value for name, value in plan.loss._asdict().items()},
        "kept": kept or [],
    }


def repair_lines(
    log: LogFiles, plan: RepairPlan | None, kept: list[str] | None
) -> list[str]:
    """What was done, or would be, in full."""
    if plan is None:
        return [f"{log.name}: nothing to repair"]
    loss, is_done = plan.loss, kept is not None
    offsets = (f"offsets {plan.end_offset} to {loss.offset_end - 1}"
               if loss.offset_end > plan.end_offset else "no client offset that is known")
    cut = (f"  {'cut' if is_done else 'would be cut'} at position {plan.position} of "
           f"{file_name(plan.segment)}; the log {'ends' if is_done else 'would end'} at offset "
           f"{plan.end_offset}, log offset {plan.log_end}")
    lost = (f"  {'lost' if is_done else 'would be lost'}: {offsets}; batches: {loss.batches}, "
            f"records: {loss.records}, bytes: {loss.bytes}, of which no batch: "
            f"{loss.damaged_bytes}")
    lines = [f"{log.name}: {plan.why}", cut, lost]
    if plan.why.kind is FindingKind.SHORT:
        verb = "expects" if is_done else "would expect"
        lines[1:] = [f"  a node {verb} no more than that; it ends at offset {plan.end_offset}"]
    lines += [f"  kept: {path}" for path in kept or ()]
    if not is_done:
        lines.append("  nothing was changed: repeat with --yes to do it")
    return lines
