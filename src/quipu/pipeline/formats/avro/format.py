"""`AvroFormat`: decodes Avro messages to columns.

A message is the value's bytes, alone or after Confluent's frame: a zero, then the id of the
writer's schema in the registry (four bytes, big-endian).  The writer's schema is looked up once by
that id; without a registry all messages are written with the reader's schema.

An id that the registry does not know, or whose schema is unusable, is an error of its messages; a
registry that does not respond is an error of the whole call, which may be repeated.  In one call
at most MISSES_MAX unknown ids are looked up, the most frequent first, so that messages with random
ids cost a few look-ups, not one each.
"""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quipu.pipeline.formats.avro import walk
from quipu.pipeline.formats.avro._walk_pure import FRAME_SIZE
from quipu.pipeline.formats.avro.program import compile_program, layout_of
from quipu.pipeline.formats.avro.schema import (
    AvroSchemaError,
    SchemaNode,
    columns_of,
    parse,
    self_contained,
)
from quipu.pipeline.formats.avro.steps import (
    FAULTS,
    NO_ID,
    Code,
    Complaint,
    MessageFault,
    ReadProgram,
)
from quipu.pipeline.formats.bounds import decoded_by_halves
from quipu.pipeline.formats.casts import error_array
from quipu.pipeline.formats.contract import Decoded
from quipu.pipeline.formats.specs import Avro
from quipu.pipeline.formats.time_range import checked
from quipu.pipeline.registry.client import (
    Registered,
    RegistryClient,
    SchemaNotFound,
    SchemaUnusable,
    client_for,
)

TRAILING_SHOWN: Final = 16
MISSES_MAX: Final = 100  # look-ups of unknown ids for one block of messages
PROGRAMS_MAX: Final = 10_000  # that are kept
_PREFIX: Final = "avro deserialization error: "


_TOO_MANY: Final = ReadProgram(
    (), f"it was not looked up: more than {MISSES_MAX} other schema ids of messages next to this "
    "one are not in the registry")


def whole_schema(client: RegistryClient, registered: Registered) -> str:
    """A registered Avro schema that contains the schemas it refers to."""
    if registered.kind != "AVRO":
        raise AvroSchemaError(f"schema id {registered.schema_id} is not Avro but "
                              f"{registered.kind}")
    return self_contained(registered.schema, [*client.texts_of(registered.references).values()])


class AvroFormat:
    """Decodes messages with one reader's schema; keeps the programs of writers' schemas.

    With `reader`, which is a part of the schema, only that part is decoded.
    """

    def __init__(self, spec: Avro, registry_client: RegistryClient | None = None, *,
                 reader: SchemaNode | None = None) -> None:
        whole = parse(spec.schema)
        self._reader = whole if reader is None else reader
        self._framed = spec.framed
        self._registry = spec.registry
        self._client = registry_client
        self._layout = layout_of(self._reader)
        self._programs: dict[int, ReadProgram] = {}
        self._codes: dict[int, Code] = {}
        self.columns = columns_of(self._reader)
        self._own = compile_program(whole, self._reader, self._layout)
        self._too_many = walk.load(_TOO_MANY)

    def decode(self, data: pa.BinaryArray) -> Decoded:
        return decoded_by_halves(self._decode, data, self.columns, _PREFIX)

    def _decode(self, data: pa.BinaryArray) -> Decoded:
        missing = self._prepare(data) if self._framed else self._missing_of([NO_ID])
        root, complaints = walk.walk(self._layout.sinks, self._codes, data,
                                          framed=self._framed)
        errors = error_array({each.row: self._text(each, data) for each in complaints}, len(data))
        for schema_id in missing:  # it may be registered by the next call
            del self._programs[schema_id], self._codes[schema_id]
        columns = [root.field(index) for index in range(len(self.columns))]
        return checked(Decoded(columns, errors, _absent(root, complaints)), _PREFIX)

    def _prepare(self, data: pa.BinaryArray) -> list[int]:
        """Make programs for all ids of messages; returns the ids that are not in the registry."""
        if len(self._programs) > PROGRAMS_MAX:
            self._programs.clear()
            self._codes.clear()
        ids = [each for each in walk.schema_ids(data) if each not in self._programs]
        if len(ids) <= MISSES_MAX:
            return self._missing_of(ids)
        return self._missing_of(_most_frequent_first(data, ids))

    def _missing_of(self, ids: list[int]) -> list[int]:
        missing: list[int] = []
        for schema_id in ids:
            if len(missing) < MISSES_MAX:
                if not self._is_known(schema_id):
                    missing.append(schema_id)
                continue
            missing.append(schema_id)
            self._programs[schema_id] = _TOO_MANY
            self._codes[schema_id] = self._too_many
        return missing

    def _is_known(self, schema_id: int) -> bool:
        """Is the id in the registry?  Adds a program for it, also if it is not."""
        if schema_id in self._programs:
            return True
        found = True
        try:
            program = self._program(schema_id)
        except (SchemaNotFound, SchemaUnusable) as error:
            program, found = ReadProgram((), str(error)), False
        except AvroSchemaError as error:
            program = ReadProgram((), str(error))
        self._programs[schema_id] = program
        self._codes[schema_id] = walk.load(program)
        return found

    def _program(self, schema_id: int) -> ReadProgram:
        if self._client is None and self._registry is not None:
            self._client = client_for(self._registry)  # only now: it reads certificates
        if self._client is None or schema_id == NO_ID:
            return self._own
        writer = parse(whole_schema(self._client, self._client.by_id(schema_id)))
        return compile_program(writer, self._reader, self._layout)

    def _text(self, complaint: Complaint, data: pa.BinaryArray) -> str:
        row, fault, detail, schema_id = complaint
        match fault:
            case MessageFault.SHORT_FRAME:
                return (f"{_PREFIX}Confluent-style avro datum is too few bytes: expected at least "
                        f"5 bytes, got {detail}")
            case MessageFault.MAGIC:
                return (f"{_PREFIX}wrong Confluent-style avro serialization magic: expected 0, "
                        f"got {detail}")
            case MessageFault.TRAILING:
                return _trailing(data[row].as_buffer(), detail)
            case MessageFault.NO_PROGRAM:
                reason = self._programs[schema_id].fault
            case MessageFault.FAILED:
                text = self._programs[schema_id].steps[detail].texts[0]
                reason = "" if text is None else text.decode()
            case _:
                reason = FAULTS[fault].format(detail)
        where = "" if schema_id == NO_ID else f" (Avro schema id = {schema_id})"
        return f"{_PREFIX}unable to decode row{where}: {reason}"


def _most_frequent_first(data: pa.BinaryArray, ids: list[int]) -> list[int]:
    frames = pc.binary_slice(data.drop_null(), 0, FRAME_SIZE)
    frames = frames.filter(pc.equal(pc.binary_length(frames), FRAME_SIZE))
    counts = {each["values"]: each["counts"] for each in frames.value_counts().to_pylist()}
    return sorted(ids, key=lambda each: -counts.get(b"\0" + each.to_bytes(4, "big"), 0))


def _trailing(message: pa.Buffer, start: int) -> str:
    rest = message[start:start + TRAILING_SHOWN].to_pybytes()
    more = ", …" if message.size - start > TRAILING_SHOWN else ""
    return (f"Unexpected bytes remaining for decoded value: "
            f"[{', '.join(map(str, rest))}{more}]")


def _absent(root: pa.StructArray, complaints: list[Complaint]) -> pa.Array:
    absent = root.is_null()
    if not complaints:
        return absent
    flags = absent.to_numpy(zero_copy_only=False)
    flags[np.array([each.row for each in complaints])] = False
    return pa.array(flags)
