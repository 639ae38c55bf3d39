"""Parses `.proto` text, as schema registries hold it, to a set of file descriptors.

It reads what defines the layout of messages: packages, imports, messages, enums, fields of all
kinds, maps, oneofs, proto2 and proto3.  It skips the rest: options, services, extensions, reserved
names.  Groups and editions are refused.  Names are left as they are written; Google's library
resolves them when it reads the descriptors.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from google.protobuf import descriptor_pb2

from quipu.pipeline.formats.protobuf.format import ProtobufSchemaError

TEXT_SIZE_MAX: Final = 1 << 20
DEPTH_MAX: Final = 64

_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)"""
    r"""|(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
    r"""|(?P<word>[.]?[A-Za-z_][\w.]*)"""
    r"""|(?P<number>[+-]?[0-9][\w.+-]*)"""
    r"""|(?P<sign>[{}\[\]()<>=;,:\-+/])""", re.DOTALL)
_WHOLE: Final = re.compile(r"[+-]?(0[xX][0-9a-fA-F]{1,16}|0[0-7]{0,22}|[1-9][0-9]{0,19})")
_FIELD: Final = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {name: getattr(_FIELD, f"TYPE_{name.upper()}") for name in (
    "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "bytes",
    "uint32", "sfixed32", "sfixed64", "sint32", "sint64")}
_LABELS: Final = {"optional": _FIELD.LABEL_OPTIONAL, "required": _FIELD.LABEL_REQUIRED,
                  "repeated": _FIELD.LABEL_REPEATED}

Proto = Any  # descriptors are classes made at run time


class _Token(NamedTuple):
    text: str
    kind: str
    line: int


def descriptors_of(text: str, imports: Mapping[str, str] | None = None,
                   name: str = "schema.proto") -> bytes:
    """A serialized FileDescriptorSet: the imported files, then the file itself."""
    files = [_ProtoParser(each, file_name).file() for file_name, each in (imports or {}).items()]
    files.append(_ProtoParser(text, name).file())
    return bytes(descriptor_pb2.FileDescriptorSet(file=files).SerializeToString())


class _ProtoParser:
    """Parses one file."""

    def __init__(self, text: str, name: str) -> None:
        if len(text) > TEXT_SIZE_MAX:
            raise ProtobufSchemaError(f"{name}: longer than {TEXT_SIZE_MAX} characters")
        self._name = name
        self._tokens = self._scan(text)
        self._at = 0
        self._syntax = "proto2"

    def _scan(self, text: str) -> list[_Token]:
        tokens, at, line = [], 0, 1
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise ProtobufSchemaError(f"{self._name}:{line}: {text[at]!r} is unexpected")
            if found.lastgroup != "space":
                tokens.append(_Token(found[0], str(found.lastgroup), line))
            line += found[0].count("\n")
            at = found.end()
        return [*tokens, _Token("", "end", line)]

    # -- tokens ---------------------------------------------------------------------------------

    def _peek(self) -> str:
        return self._tokens[self._at].text

    def _next(self, kind: str = "") -> str:
        token = self._tokens[self._at]
        if token.kind == "end" or (kind and token.kind != kind):
            raise self._unexpected(kind)
        self._at += 1
        return token.text

    def _take(self, text: str) -> bool:
        if self._peek() != text:
            return False
        self._at += 1
        return True

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise self._unexpected(repr(text))

    def _unexpected(self, wanted: str = "") -> ProtobufSchemaError:
        token = self._tokens[self._at]
        expected = f", where there should be {wanted}" if wanted else ""
        shown = repr(token.text[:50]) if token.text else "the end"
        return ProtobufSchemaError(f"{self._name}:{token.line}: {shown} is unexpected{expected}")

    def _number(self) -> int:
        sign = -1 if self._take("-") else 1
        if self._tokens[self._at].kind != "number" or not _WHOLE.fullmatch(self._peek()):
            raise self._unexpected("a whole number")
        text = self._next().lower()
        base = 16 if "x" in text else 8 if text.lstrip("+-").startswith("0") else 10
        return sign * int(text, base)

    def _skip_statement(self) -> None:
        """Skip to the end of a statement: a semicolon, or a block in braces."""
        depth = 0
        while True:
            piece = self._next()
            if piece in "{[(":
                depth += 1
            elif piece in "}])":
                depth -= 1
                if depth == 0 and piece == "}":
                    self._take(";")
                    return
            elif piece == ";" and depth == 0:
                return

    # -- statements -----------------------------------------------------------------------------

    def file(self) -> Proto:
        file = descriptor_pb2.FileDescriptorProto(name=self._name)
        while self._peek():
            match self._next():
                case ";":
                    pass
                case "syntax":
                    self._expect("=")
                    self._syntax = self._next("text")[1:-1]
                    if self._syntax not in ("proto2", "proto3"):
                        raise self._unexpected("proto2 or proto3")
                    self._expect(";")
                case "edition":
                    raise ProtobufSchemaError(f"{self._name}: editions are not supported, only "
                                              "proto2 and proto3; give descriptors instead")
                case "package":
                    file.package = self._next("word")
                    self._expect(";")
                case "import":
                    if self._take("public"):
                        file.public_dependency.append(len(file.dependency))
                    else:
                        self._take("weak")
                    file.dependency.append(self._next("text")[1:-1])
                    self._expect(";")
                case "message":
                    self._message(file.message_type.add(), 0)
                case "enum":
                    self._enum(file.enum_type.add())
                case "option" | "service" | "extend":
                    self._skip_statement()
                case _:
                    self._at -= 1
                    raise self._unexpected("a statement")
        file.syntax = self._syntax
        return file

    def _message(self, message: Proto, depth: int) -> None:
        if depth > DEPTH_MAX:
            raise ProtobufSchemaError(f"{self._name}: messages nest deeper than {DEPTH_MAX}")
        message.name = self._next("word")
        self._expect("{")
        optionals: list[Proto] = []
        while not self._take("}"):
            match self._peek():
                case ";":
                    self._next()
                case "message" if self._is_definition():
                    self._next()
                    self._message(message.nested_type.add(), depth + 1)
                case "enum" if self._is_definition():
                    self._next()
                    self._enum(message.enum_type.add())
                case "oneof" if self._is_definition():
                    self._next()
                    self._oneof(message)
                case "option" | "reserved" | "extensions" | "extend":
                    self._skip_statement()
                case _:
                    self._field(message, optionals)
        for field in optionals:  # each is the only field of a oneof of its own
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")

    def _is_definition(self) -> bool:
        """Is a word that could also be a type's name followed by a name and a brace?"""
        return self._tokens[min(self._at + 2, len(self._tokens) - 1)].text == "{"

    def _oneof(self, message: Proto) -> None:
        index = len(message.oneof_decl)
        message.oneof_decl.add(name=self._next("word"))
        self._expect("{")
        while not self._take("}"):
            if self._peek() == "option":
                self._skip_statement()
            elif not self._take(";"):
                field = self._plain_field(message, _FIELD.LABEL_OPTIONAL)
                field.oneof_index = index

    def _field(self, message: Proto, optionals: list[Proto]) -> None:
        if self._peek() == "map" and self._tokens[self._at + 1].text == "<":
            self._map(message)
            return
        label = _FIELD.LABEL_OPTIONAL
        word = self._peek()
        if word in _LABELS:
            self._next()
            label = _LABELS[word]
        field = self._plain_field(message, label)
        if word == "optional" and self._syntax == "proto3":
            field.proto3_optional = True
            optionals.append(field)

    def _plain_field(self, message: Proto, label: int) -> Proto:
        kind = self._next("word")
        if kind == "group":
            raise ProtobufSchemaError(f"{self._name}: groups are not supported")
        field = message.field.add(label=label, name=self._next("word"))
        _set_type(field, kind)
        self._expect("=")
        field.number = self._number()
        self._field_options(field)
        return field

    def _map(self, message: Proto) -> None:
        self._next()
        self._expect("<")
        key = self._next("word")
        self._expect(",")
        value = self._next("word")
        self._expect(">")
        name = self._next("word")
        entry = message.nested_type.add(
            name="".join(part[:1].upper() + part[1:] for part in name.split("_")) + "Entry")
        entry.options.map_entry = True
        for number, (part, kind) in enumerate((("key", key), ("value", value)), start=1):
            inner = entry.field.add(name=part, number=number, label=_FIELD.LABEL_OPTIONAL)
            _set_type(inner, kind)
        field = message.field.add(name=name, label=_FIELD.LABEL_REPEATED, type_name=entry.name)
        self._expect("=")
        field.number = self._number()
        self._field_options(field)

    def _field_options(self, field: Proto) -> None:
        """Read the options of a field; all but its default are skipped."""
        if self._take("["):
            if self._peek() == "default":
                self._next()
                self._expect("=")
                sign = "-" if self._take("-") else ""
                value = self._next()
                field.default_value = sign + (
                    value[1:-1] if value[0] in "\"'" else value)
            depth = 1
            while depth:
                piece = self._next()
                depth += (piece in "[{") - (piece in "]}")
        self._expect(";")

    def _enum(self, enum: Proto) -> None:
        enum.name = self._next("word")
        self._expect("{")
        while not self._take("}"):
            if self._take(";"):
                continue
            if self._peek() == "option" and self._tokens[self._at + 1].text != "=":
                self._at += 1
                if self._peek() == "allow_alias":
                    enum.options.allow_alias = self._tokens[self._at + 2].text == "true"
                self._skip_statement()
            elif self._peek() == "reserved" and self._tokens[self._at + 1].text != "=":
                self._skip_statement()
            else:
                name = self._next("word")
                self._expect("=")
                enum.value.add(name=name, number=self._number())
                if self._peek() == "[":
                    self._skip_statement()
                else:
                    self._expect(";")


def _set_type(field: Proto, kind: str) -> None:
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type_name = kind  # a message or an enum: the library finds out which
