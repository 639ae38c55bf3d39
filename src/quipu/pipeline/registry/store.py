"""What a schema registry knows: subjects, their versions, and schemas by id.  No I/O here.

    R1  an id stands for one schema for ever, whatever becomes of its versions
    R2  the same schema (as JSON, with its references) has one id in all subjects
    R3  numbers of versions go up; one that was deleted is not given again while it is kept

Deletes are soft, as in Confluent's: a deleted version is not listed, and its schema can still be
read by id.  Compatibility is judged for Avro, by the rules by which messages are read.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

from quipu.pipeline.formats.avro_compatibility import complaint
from quipu.pipeline.formats.avro_schema import AvroSchemaError, parse, self_contained

KINDS: Final = ("AVRO", "PROTOBUF", "JSON")
LEVELS: Final = ("NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE",
                 "FULL", "FULL_TRANSITIVE")
SUBJECTS_MAX: Final = 100_000
REFERENCES_MAX: Final = 200
VERSION_MAX: Final = (1 << 31) - 1


class Refused(Exception):
    """A request that is not granted: the HTTP status, the registry's code, and why."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


@dataclass(frozen=True)
class Reference:
    """Another schema that a schema uses."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True)
class Schema:
    """A schema, as it was registered."""

    text: str
    kind: str = "AVRO"
    references: tuple[Reference, ...] = ()


@dataclass
class Version:
    """One version of a subject."""

    number: int
    schema_id: int
    deleted: bool = False


@dataclass
class Store:
    """All of a registry."""

    schemas: dict[int, Schema] = field(default_factory=dict)
    subjects: dict[str, list[Version]] = field(default_factory=dict)
    levels: dict[str, str] = field(default_factory=dict)  # by subject; "" for all others

    @classmethod
    def from_json(cls, text: str) -> "Store":
        """What `to_json` wrote."""
        content = json.loads(text)
        schemas = {
            int(schema_id): Schema(each["text"], each["kind"], tuple(
                Reference(**reference) for reference in each["references"]))
            for schema_id, each in content["schemas"].items()}
        subjects = {name: [Version(**each) for each in versions]
                    for name, versions in content["subjects"].items()}
        return cls(schemas, subjects, content["levels"])

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    # -- questions ------------------------------------------------------------------------------

    def listed(self, *, deleted: bool = False) -> list[str]:
        """The subjects that have a version."""
        return sorted(name for name, versions in self.subjects.items()
                      if any(deleted or not version.deleted for version in versions))

    def versions(self, subject: str, *, deleted: bool = False) -> list[Version]:
        found = [each for each in self.subjects.get(subject, ()) if deleted or not each.deleted]
        if not found:
            raise Refused(404, 40401, f"Subject '{subject}' not found.")
        return found

    def version(self, subject: str, number: str, *, deleted: bool = False) -> Version:
        """A version by its number, or the latest."""
        if number not in ("latest", "-1") and not (
                is_number(number) and 1 <= int(number) <= VERSION_MAX):
            raise Refused(422, 42202, f"The specified version '{number}' is not a valid version "
                          "id.")
        found = self.versions(subject, deleted=deleted)
        if number in ("latest", "-1"):
            return found[-1]
        for version in found:
            if version.number == int(number):
                return version
        raise Refused(404, 40402, f"Version {number} not found.")

    def schema(self, schema_id: int) -> Schema:
        if schema_id not in self.schemas:
            raise Refused(404, 40403, f"Schema {schema_id} not found")
        return self.schemas[schema_id]

    def users_of(self, schema_id: int) -> list[tuple[str, int]]:
        """Subjects and versions that have a schema."""
        self.schema(schema_id)
        return [(name, version.number) for name in self.listed()
                for version in self.versions(name) if version.schema_id == schema_id]

    def find(self, subject: str, schema: Schema) -> Version:
        """The version of a subject that is this schema."""
        for version in self.versions(subject):
            if _same(self.schemas[version.schema_id], schema):
                return version
        raise Refused(404, 40403, "Schema not found")

    def level(self, subject: str = "") -> str:
        return self.levels.get(subject) or self.levels.get("") or "BACKWARD"

    # -- changes --------------------------------------------------------------------------------

    def register(self, subject: str, schema: Schema) -> int:
        """The schema's id; it is the subject's latest version, unless it was one already."""
        if not subject or (subject not in self.subjects and len(self.subjects) >= SUBJECTS_MAX):
            raise Refused(422, 42201, "a subject has a name; there is no room for more of them"
                          if subject else "a subject has a name")
        self._whole(schema)
        versions = self.subjects.get(subject, [])
        for version in versions:
            if not version.deleted and _same(self.schemas[version.schema_id], schema):
                return version.schema_id
        wrong = self.complaints(subject, schema)
        if wrong:
            raise Refused(409, 409, "Schema being registered is incompatible with an earlier "
                          f'schema for subject "{subject}": {wrong[0]}')
        schema_id = self._id_of(schema)
        number = max((each.number for each in versions), default=0) + 1  # R3
        self.subjects.setdefault(subject, []).append(Version(number, schema_id))
        return schema_id

    def delete(self, subject: str, number: str | None = None, *,
               permanent: bool = False) -> list[int]:
        """Delete a version, or all; permanently only what was deleted before."""
        if number is None:
            going = self.versions(subject, deleted=permanent)
        else:
            going = [self.version(subject, number, deleted=permanent)]
        if not permanent:
            for version in going:
                version.deleted = True
        elif all(version.deleted for version in going):
            kept = [each for each in self.subjects[subject] if each not in going]
            self.subjects[subject] = kept
        else:
            raise Refused(404, 40405, f"Subject '{subject}' was not deleted first before being "
                          "permanently deleted")
        return [version.number for version in going]

    def set_level(self, subject: str, level: str) -> None:
        if level not in LEVELS:
            raise Refused(422, 42203, f"Invalid compatibility level. Valid values are "
                          f"{', '.join(LEVELS).lower()}")
        self.levels[subject] = level

    def complaints(self, subject: str, schema: Schema, number: str | None = None) -> list[str]:
        """Why a schema does not go with a subject's versions, by the subject's level.

        With a number, only that version is looked at.
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

    def _complaints(self, old: Schema, new: Schema, level: str) -> Iterable[str]:
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
        return [each for each in (complaint(*pair) for pair in pairs) if each is not None]

    def _whole(self, schema: Schema) -> str:
        """A schema's text with its references; for Avro, checked."""
        texts: dict[str, str] = {}
        self._collect(schema.references, texts, 0)
        if schema.kind != "AVRO":
            return schema.text
        try:
            whole = self_contained(schema.text, [*texts.values()])
            parse(whole)
        except AvroSchemaError as error:
            raise Refused(422, 42201, f"Invalid schema: {error}") from None
        return whole

    def _collect(self, references: Sequence[Reference], texts: dict[str, str],
                 depth: int) -> None:
        for each in references:
            if depth > REFERENCES_MAX or len(texts) > REFERENCES_MAX:
                raise Refused(422, 42201, f"more than {REFERENCES_MAX} references")
            version = self.version(each.subject, str(each.version), deleted=True)
            schema = self.schemas[version.schema_id]
            self._collect(schema.references, texts, depth + 1)
            texts[each.name] = schema.text

    def _id_of(self, schema: Schema) -> int:
        for schema_id, known in self.schemas.items():  # R2
            if _same(known, schema):
                return schema_id
        schema_id = max(self.schemas, default=0) + 1
        self.schemas[schema_id] = schema
        return schema_id


def _same(one: Schema, other: Schema) -> bool:
    return (one.kind, one.references) == (other.kind, other.references) and (
        one.text == other.text or (one.kind != "PROTOBUF" and _json(one) == _json(other)))


def _json(schema: Schema) -> object:
    try:
        return json.loads(schema.text)
    except ValueError:
        return schema.text


def is_number(text: str) -> bool:
    """A number of a request, of few enough digits to be counted with."""
    return text.isascii() and text.isdigit() and len(text) <= 10


def schema_of(body: Mapping[str, object]) -> Schema:
    """A schema from a request's JSON."""
    text, kind = body.get("schema"), body.get("schemaType") or "AVRO"
    references = body.get("references") or []
    if not isinstance(text, str) or kind not in KINDS or not isinstance(references, list):
        raise Refused(422, 42201, f"a schema is text, of a kind that is one of {', '.join(KINDS)}")
    return Schema(text, str(kind), tuple(_reference(each) for each in references))


def _reference(body: object) -> Reference:
    if isinstance(body, dict):
        name, subject, version = body.get("name"), body.get("subject"), body.get("version")
        if isinstance(name, str) and isinstance(subject, str) and isinstance(version, int):
            return Reference(name, subject, version)
    raise Refused(422, 42201, "a reference has a name, a subject and a version")
