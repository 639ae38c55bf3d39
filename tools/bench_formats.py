"""Measures how fast Avro and JSON are decoded into Arrow columns, compared with other libraries.

    python -m tools.bench_formats [COUNT]    prints one line per way, best of three

Its numbers are in docs/adr/0031 and docs/adr/0032.
"""

import io
import json
import sys
import time
from collections.abc import Callable

import fastavro
import orjson
import pyarrow as pa
import pyarrow.json

from quipu.pipeline.formats.avro import walk
from quipu.pipeline.formats.avro.format import AvroFormat
from quipu.pipeline.formats.json import scan
from quipu.pipeline.formats.json.format import JsonFormat
from quipu.pipeline.formats.specs import Avro, Json
from quipu.pipeline.types import Column

RUNS = 3
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("amount", pa.float64()),
                    ("paid", pa.bool_()), ("note", pa.string())])
AVRO = {"type": "record", "name": "Row", "fields": [
    {"name": "id", "type": "long"}, {"name": "name", "type": "string"},
    {"name": "amount", "type": "double"}, {"name": "paid", "type": "boolean"},
    {"name": "note", "type": ["null", "string"]}]}


def main() -> int:
    """Measure each way on the same rows."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    rows: list[dict[str, object]] = [
        {"id": each, "name": f"customer {each}", "amount": each / 4, "paid": each % 3 == 0,
         "note": None if each % 5 else "x" * 20} for each in range(count)]
    print(f"{count} rows of 5 columns; compiled: Avro {walk.COMPILED}, JSON {scan.COMPILED}")
    measure_avro(rows)
    measure_json(rows)
    return 0


def measure_avro(rows: list[dict[str, object]]) -> None:
    parsed = fastavro.parse_schema(AVRO)
    messages = []
    for row in rows:
        written = io.BytesIO()
        fastavro.schemaless_writer(written, parsed, row)
        messages.append(written.getvalue())
    data = pa.array(messages, pa.binary())
    ours = AvroFormat(Avro(json.dumps(AVRO), framed=False))
    show("Avro, ours", len(rows), lambda: ours.decode(data))
    show("Avro, fastavro and from_pylist", len(rows), lambda: pa.Table.from_pylist(
        [fastavro.schemaless_reader(io.BytesIO(each), parsed) for each in messages], SCHEMA))


def measure_json(rows: list[dict[str, object]]) -> None:
    messages = [orjson.dumps(row) for row in rows]
    data = pa.array(messages, pa.binary())
    ours = JsonFormat(Json(tuple(Column(each.name, each.type, nullable=True) for each in SCHEMA)))
    show("JSON, ours", len(rows), lambda: ours.decode(data))
    show("JSON, orjson and from_pylist", len(rows), lambda: pa.Table.from_pylist(
        [orjson.loads(each) for each in messages], SCHEMA))
    show("JSON, pyarrow.json, one thread", len(rows), lambda: pyarrow.json.read_json(
        io.BytesIO(b"\n".join(messages)),
        pyarrow.json.ReadOptions(use_threads=False, block_size=1 << 28),
        pyarrow.json.ParseOptions(explicit_schema=SCHEMA)))


def show(name: str, count: int, decode: Callable[[], object]) -> None:
    """Print how many messages a second one way decodes."""
    seconds = []
    for _ in range(RUNS):
        start = time.perf_counter()
        decode()
        seconds.append(time.perf_counter() - start)
    print(f"{name:32} {count / min(seconds) / 1e6:6.2f} million messages/s")


if __name__ == "__main__":
    sys.exit(main())
