"""The content of a schema registry: subjects, their versions, and schemas by id; no I/O.

    pipeline.R1  an id is that of one schema for ever, also after its versions are deleted
    pipeline.R2  the same schema (as JSON, with its references) has one id in all subjects
    pipeline.R3  numbers of versions increase; that of a soft-deleted version is not used again

Deletes are soft, as in Confluent's registry: a deleted version is not listed, and its schema can
still be read by id.  Compatibility is checked for Avro, by the rules by which messages are read.

Everything is bounded: sizes and depths of schemas, references (each schema is followed once, even
if it is reached by several names), versions, subjects, and the total size.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Final

from quipu.pipeline.formats.avro.compatibility import complaint
from quipu.pipeline.formats.avro.schema import AvroSchemaError, parse, self_contained

KINDS: Final = ("AVRO", "PROTOBUF", "JSON")
LEVELS: Final = ("NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE",
                 "FULL", "FULL_TRANSITIVE")
SUBJECTS_MAX: Final = 100_000
SUBJECT_SIZE_MAX: Final = 1000  # characters
VERSIONS_MAX: Final = 10_000  # of a subject, deleted ones too
REFERENCES_MAX: Final = 200  # of a schema, and of those that it refers to
TEXT_SIZE_MAX: Final = 1 << 20  # of a schema
TEXTS_SIZE_MAX: Final = 256 << 20  # of all schemas
DEPTH_MAX: Final = 200  # of a schema's JSON
_BRACKETS: Final = re.compile(  # outside of strings; one that does not end goes up to the end
    r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|([][{}])', re.DOTALL)
VERSION_MAX: Final = (1 << 31) - 1


class Denied(Exception):
    """A request is refused: the HTTP status, the registry's error code, and the message."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


@dataclass(frozen=True)
class StoredReference:
    """Another schema that a schema uses."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True)
class StoredSchema:
    """A schema, as it was registered."""

    text: str
    kind: str = "AVRO"
    references: tuple[StoredReference, ...] = ()


@dataclass
class SubjectVersion:
    """One version of a subject."""

    number: int
    schema_id: int
    deleted: bool = False


@dataclass
class Store:
    """The schemas, subjects and compatibility levels of a registry."""

    schemas: dict[int, StoredSchema] = field(default_factory=dict)
    subjects: dict[str, list[SubjectVersion]] = field(default_factory=dict)
    levels: dict[str, str] = field(default_factory=dict)  # by subject; "" for all others

    def __post_init__(self) -> None:
        # pipeline.R2: one id for each schema
        self._ids = {_key(schema): schema_id for schema_id, schema in self.schemas.items()}
        self._size = sum(len(schema.text) for schema in self.schemas.values())

    @classmethod
    def from_json(cls, text: str) -> "Store":
        """The inverse of `to_json`."""
        content = json.loads(text)
        schemas = {
            int(schema_id): StoredSchema(each["text"], each["kind"], tuple(
                StoredReference(**reference) for reference in each["references"]))
            for schema_id, each in content["schemas"].items()}
        subjects = {name: [SubjectVersion(**each) for each in versions]
                    for name, versions in content["subjects"].items()}
        return cls(schemas, subjects, content["levels"])

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    # -- reads ----------------------------------------------------------------------------------

    def listed(self, *, deleted: bool = False) -> list[str]:
        """The subjects that have a version."""
        return sorted(name for name, versions in self.subjects.items()
                      if any(deleted or not version.deleted for version in versions))

    def versions(self, subject: str, *, deleted: bool = False) -> list[SubjectVersion]:
        found = [each for each in self.subjects.get(subject, ()) if deleted or not each.deleted]
        if not found:
            raise Denied(404, 40401, f"Subject '{subject}' not found.")
        return found

    def version(self, subject: str, number: str, *, deleted: bool = False) -> SubjectVersion:
        """A version by its number, or the latest."""
        if number not in ("latest", "-1") and not (
                is_number(number) and 1 <= int(number) <= VERSION_MAX):
            raise Denied(422, 42202, f"The specified version '{number}' is not a valid version "
                          "id.")
        found = self.versions(subject, deleted=deleted)
        if number in ("latest", "-1"):
            return found[-1]
        for version in found:
            if version.number == int(number):
                return version
        raise Denied(404, 40402, f"Version {number} not found.")

    def schema(self, schema_id: int) -> StoredSchema:
        if schema_id not in self.schemas:
            raise Denied(404, 40403, f"Schema {schema_id} not found")
        return self.schemas[schema_id]

    def users_of(self, schema_id: int) -> list[tuple[str, int]]:
        """Subjects and versions that have a schema."""
        self.schema(schema_id)
        return [(name, version.number) for name in self.listed()
                for version in self.versions(name) if version.schema_id == schema_id]

    def find(self, subject: str, schema: StoredSchema) -> SubjectVersion:
        """The version of a subject that is this schema."""
        schema_id = self._ids.get(_key(schema))
        for version in self.versions(subject):
            if version.schema_id == schema_id:
                return version
        raise Denied(404, 40403, "Schema not found")

    def level(self, subject: str = "") -> str:
        return self.levels.get(subject) or self.levels.get("") or "BACKWARD"

    # -- changes --------------------------------------------------------------------------------

    def register(self, subject: str, schema: StoredSchema) -> int:
        """Add a schema as the subject's latest version, if it is none yet; returns its id."""
        self._check_room(subject, self.subjects)
        self._whole(schema)
        versions = self.subjects.get(subject, [])
        known = self._ids.get(_key(schema))
        if known is not None and any(
                version.schema_id == known and not version.deleted for version in versions):
            return known
        if len(versions) >= VERSIONS_MAX:
            raise Denied(422, 42201, f"subject '{subject}' has {VERSIONS_MAX} versions, deleted "
                          "ones too: delete it permanently")
        wrong = self.complaints(subject, schema)
        if wrong:
            raise Denied(409, 409, "Schema being registered is incompatible with an earlier "
                          f'schema for subject "{subject}": {wrong[0]}')
        schema_id = self._id_of(schema)
        number = max((each.number for each in versions), default=0) + 1  # pipeline.R3
        self.subjects.setdefault(subject, []).append(SubjectVersion(number, schema_id))
        return schema_id

    def delete(self, subject: str, number: str | None = None, *,
               permanent: bool = False) -> list[int]:
        """Delete a version, or all; permanently only those that were soft-deleted before."""
        if number is None:
            going = self.versions(subject, deleted=permanent)
        else:
            going = [self.version(subject, number, deleted=permanent)]
        if not permanent:
            for version in going:
                version.deleted = True
        elif all(version.deleted for version in going):
            kept = [each for each in self.subjects[subject] if each not in going]
            self.subjects[subject] = kept  # pipeline.R1: the schemas stay, by their ids
        else:
            raise Denied(404, 40405, f"Subject '{subject}' was not deleted first before being "
                          "permanently deleted")
        return [version.number for version in going]

    def set_level(self, subject: str, level: str) -> None:
        if level not in LEVELS:
            raise Denied(422, 42203, f"Invalid compatibility level. Valid values are "
                          f"{', '.join(LEVELS).lower()}")
        if subject:
            self._check_room(subject, self.levels)
        self.levels[subject] = level

    def complaints(
        self, subject: str, schema: StoredSchema, number: str | None = None,
    ) -> list[str]:
        """Why a schema is incompatible with a subject's versions, by the subject's level.

        With a number, only that version is compared.
        """
        level = self.level(subject)
        known = [each for each in self.subjects.get(subject, ()) if not each.deleted]
        if number is not None:
            known = [self.version(subject, number)]
        elif not level.endswith("_TRANSITIVE"):
            known = known[-1:]
        if level == "NONE":
            return []
        found: list[str] = []
        for version in known:
            found += self._complaints(self.schemas[version.schema_id], schema, level)
        return found

    def _complaints(self, old: StoredSchema, new: StoredSchema, level: str) -> Iterable[str]:
        if old.kind != new.kind:
            return [f"it is {new.kind}, and was {old.kind}"]
        if new.kind != "AVRO":
            return []
        before, after = parse(self._whole(old)), parse(self._whole(new))
        pairs = []
        if level.startswith(("BACKWARD", "FULL")):
            pairs.append((before, after))
        if level.startswith(("FORWARD", "FULL")):
            pairs.append((after, before))
        try:
            return [each for each in (complaint(*pair) for pair in pairs) if each is not None]
        except (AvroSchemaError, RecursionError) as error:
            raise Denied(422, 42201, f"Invalid schema: {str(error)[:1000]}") from None

    def _whole(self, schema: StoredSchema) -> str:
        """A schema's text; for Avro it is checked, and contains the schemas it refers to."""
        texts: dict[tuple[str, int], str] = {}
        self._collect(schema.references, texts, 0)
        if schema.kind == "JSON":
            _check_json(schema.text)
        if schema.kind != "AVRO":
            return schema.text
        try:
            whole = self_contained(schema.text, [*texts.values()])
            parse(whole)
        except (AvroSchemaError, RecursionError) as error:
            raise Denied(422, 42201, f"Invalid schema: {str(error)[:1000]}") from None
        return whole

    def _collect(self, references: Sequence[StoredReference], texts: dict[tuple[str, int], str],
                 depth: int) -> None:
        """Collect the texts of all referenced schemas, each once, after those that it uses."""
        for each in references:
            place = (each.subject, each.version)
            if place in texts:
                continue
            if depth >= REFERENCES_MAX or len(texts) >= REFERENCES_MAX:
                raise Denied(422, 42201, f"more than {REFERENCES_MAX} references")
            version = self.version(each.subject, str(each.version), deleted=True)
            schema = self.schemas[version.schema_id]
            self._collect(schema.references, texts, depth + 1)
            texts[place] = schema.text

    def _check_room(self, subject: str, named: Mapping[str, object]) -> None:
        if not subject:
            raise Denied(422, 42201, "a subject has a name")
        if len(subject) > SUBJECT_SIZE_MAX:
            raise Denied(422, 42201, f"the name of a subject has at most {SUBJECT_SIZE_MAX} "
                          "characters")
        if subject not in named and len(named) >= SUBJECTS_MAX:
            raise Denied(422, 42201, f"there are {SUBJECTS_MAX} subjects, and no room for more")

    def _id_of(self, schema: StoredSchema) -> int:
        key = _key(schema)
        if key in self._ids:
            return self._ids[key]
        if self._size + len(schema.text) > TEXTS_SIZE_MAX:
            raise Denied(422, 42201, f"there is no room: schemas have at most {TEXTS_SIZE_MAX} "
                          "characters in all")
        schema_id = self._ids[key] = max(self.schemas, default=0) + 1
        self.schemas[schema_id] = schema
        self._size += len(schema.text)
        return schema_id


def _check_json(text: str) -> None:
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Denied(422, 42201, f"Invalid schema: {str(error)[:1000]}") from None


def _key(schema: StoredSchema) -> bytes:
    """A hash that is equal for two texts of the same schema (pipeline.R2)."""
    text = schema.text
    if schema.kind != "PROTOBUF":
        with suppress(ValueError, RecursionError):
            text = json.dumps(json.loads(text), sort_keys=True)
    names = json.dumps([schema.kind, [asdict(each) for each in schema.references]])
    return hashlib.sha256(f"{names}\n{text}".encode(errors="surrogatepass")).digest()


def is_deep(text: str) -> bool:
    """Does JSON nest deeper than DEPTH_MAX?  It is not parsed for this."""
    depth = deepest = 0
    for bracket in _BRACKETS.findall(text):
        depth += (bracket in ("[", "{")) - (bracket in ("]", "}"))
        deepest = max(deepest, depth)
    return deepest > DEPTH_MAX


def is_number(text: str) -> bool:
    """Is a text a number of at most ten digits?"""
    return text.isascii() and text.isdigit() and len(text) <= 10


def schema_of(body: Mapping[str, object]) -> StoredSchema:
    """A schema from a request's JSON."""
    text, kind = body.get("schema"), body.get("schemaType") or "AVRO"
    references = body.get("references") or []
    if not isinstance(text, str) or kind not in KINDS or not isinstance(references, list):
        raise Denied(422, 42201, f"a schema is text, of a kind that is one of {', '.join(KINDS)}")
    if len(text) > TEXT_SIZE_MAX or (kind != "PROTOBUF" and is_deep(text)):
        raise Denied(422, 42201, f"Invalid schema: it has more than {TEXT_SIZE_MAX} characters, "
                      f"or nests deeper than {DEPTH_MAX}")
    if len(references) > REFERENCES_MAX:
        raise Denied(422, 42201, f"more than {REFERENCES_MAX} references")
    return StoredSchema(text, str(kind), tuple(_reference(each) for each in references))


def _reference(body: object) -> StoredReference:
    if isinstance(body, dict):
        name, subject, version = body.get("name"), body.get("subject"), body.get("version")
        if isinstance(name, str) and isinstance(subject, str) and isinstance(version, int):
            return StoredReference(name, subject, version)
    raise Denied(422, 42201, "a reference has a name, a subject and a version")
