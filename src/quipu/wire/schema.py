"""Messages as typed classes, and their codecs.

    class MetadataRequestTopic(Struct):
        topic_id: UUID = uuid("10+")
        name: str | None = string(nullable="10+")

    class MetadataRequest(Request, key=3, versions="0-13", flexible="9+"):
        topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable="1+")

One class serves every version: `message.encode(version)`, `MetadataRequest.decode(data, version)`.
For each version that is used, Python functions are generated and compiled on first use (encoder.py,
decoder.py), so importing a definition is cheap.

Invariants
    wire.M1  decode raises MalformedBytes, or returns a message that used exactly all of the bytes
    wire.M2  decoding takes memory in proportion to the bytes, whatever counts and lengths they hold
    wire.M3  encode(decode(bytes)) has the same content as the bytes; unknown tagged fields are kept
             in `unknown_tags`
    wire.M4  a field that a version lacks is not written, and decodes to its default

A value that does not fit its field is a bug in the caller, and encode raises.

Not here: declarations of fields (fields.py), the messages (messages/), headers (frame.py).
"""

import struct
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Self,
    TypeVar,
    dataclass_transform,
)

from quipu.model.errors import MalformedBytes
from quipu.wire.decoder import Decode, compile_decoder
from quipu.wire.encoded import EncodedArray, Meter
from quipu.wire.encoder import Encode, compile_encoder
from quipu.wire.fields import VERSION_END, Field, parse_versions
from quipu.wire.function_text import FunctionText
from quipu.wire.layout import has_records
from quipu.wire.primitives import Tags

S = TypeVar("S", bound="Struct")
_MISSING: Final = object()
NO_LIMIT: Final = 1 << 62


@dataclass_transform(kw_only_default=True)
class StructType(type):
    """Metaclass that turns the `Field`s of a class body into slots, and stores them in FIELDS."""

    FIELDS: dict[str, Field]

    def __new__(
        cls, name: str, bases: tuple[type, ...], body: dict[str, Any], **options: Any
    ) -> "StructType":
        fields = {key: value for key, value in body.items() if isinstance(value, Field)}
        kept = {key: value for key, value in body.items() if key not in fields}
        kept.setdefault("__slots__", tuple(fields))
        kept["FIELDS"] = fields
        return super().__new__(cls, name, bases, kept, **options)


class Struct(metaclass=StructType):
    """A group of fields.  Constructors take keywords only, and every field has a default."""

    __slots__ = ("unknown_tags",)  # wire.M3

    if TYPE_CHECKING:  # at run time a slot cannot have a default; the constructor gives it one
        unknown_tags: Tags = ()  # unknown tagged fields, as they were received

    def __init__(self, **values: Any) -> None:
        """Compile the constructor of the class on first use, and replace this one by it."""
        made = type(self)
        constructor = _compile_constructor(made)
        made.__init__ = constructor  # type: ignore[method-assign]  # replaced on purpose
        constructor(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.unknown_tags == other.unknown_tags and all(
            getattr(self, name) == getattr(other, name) for name in type(self).FIELDS)

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        values = [f"{name}={getattr(self, name)!r}" for name in type(self).FIELDS]
        if self.unknown_tags:
            values.append(f"unknown_tags={self.unknown_tags!r}")
        return f"{type(self).__name__}({', '.join(values)})"


class Message(Struct):
    """A struct that is sent by itself: a request, a response or a payload."""

    __slots__ = ()

    KEY: ClassVar[int]  # of the API; -1 for a payload within another message
    VERSIONS: ClassVar[range]
    FLEXIBLE_SINCE: ClassVar[int]  # the first flexible version
    _encoders: ClassVar[dict[int, Encode]]
    _decoders: ClassVar[dict[int, Decode]]
    _has_records: ClassVar[bool]  # decoded records are slices of the input; all else is copied

    def __init_subclass__(cls, *, versions: str = "", flexible: str = "", key: int = -1) -> None:
        cls.KEY = key
        cls.VERSIONS = parse_versions(versions)
        cls.FLEXIBLE_SINCE = parse_versions(flexible).start if flexible else VERSION_END
        cls._encoders = {}
        cls._decoders = {}
        cls._has_records = has_records(cls)

    def encode(self, version: int) -> bytes:
        return b"".join(self.encode_chunks(version))

    def encode_chunks(self, version: int) -> list[bytes]:
        """The encoded message as a list of chunks, not joined."""
        encode = self._encoders.get(version)
        if encode is None:
            encode = self._compile_encoder(version)
        chunks: list[bytes] = []
        encode((self,), chunks)
        return chunks

    @classmethod
    def decode(cls, data: memoryview | bytes, version: int) -> Self:
        message, position = cls.decode_prefix(data, version)
        if position != len(data):  # wire.M1
            raise MalformedBytes(f"{cls.__name__} v{version} ends at {position}, "
                                 f"but {len(data) - position} more bytes follow")
        return message

    @classmethod
    def decode_prefix(
        cls, data: memoryview | bytes, version: int, *, elements_max: int = NO_LIMIT
    ) -> tuple[Self, int]:
        """The message at the start of `data`, and the position after it.

        Raises TooManyElements if its arrays have more than `elements_max` elements in total.
        """
        decode = cls._decoders.get(version)
        if decode is None:
            decode = cls._compile_decoder(version)
        own = memoryview(data) if cls._has_records else bytes(data)
        try:
            (message,), position = decode(own, 0, len(own), 1, [elements_max])
        except (struct.error, IndexError) as error:
            raise MalformedBytes(f"{cls.__name__} v{version}: {len(data)} bytes are too few"
                                 ) from error
        except UnicodeDecodeError as error:
            raise MalformedBytes(f"{cls.__name__} v{version}: a string is not UTF-8") from error
        return message, position

    @classmethod
    def is_flexible(cls, version: int) -> bool:
        return version >= cls.FLEXIBLE_SINCE

    @classmethod
    def encoded_array(cls, of: type[S], version: int, meter: Meter) -> EncodedArray[S]:
        """An array of this message, or of a struct in it, that is encoded while it is built."""
        encode = compile_encoder(of, version, flexible=cls.is_flexible(version))
        return EncodedArray(encode, meter)

    @classmethod
    def _compile_encoder(cls, version: int) -> Encode:
        assert version in cls.VERSIONS, f"{cls.__name__} has no version {version}"
        encode = compile_encoder(cls, version, flexible=cls.is_flexible(version))
        cls._encoders[version] = encode
        return encode

    @classmethod
    def _compile_decoder(cls, version: int) -> Decode:
        assert version in cls.VERSIONS, f"{cls.__name__} has no version {version}"
        decode = compile_decoder(
            cls, version, flexible=cls.is_flexible(version), view=cls._has_records)
        cls._decoders[version] = decode
        return decode


class Request(Message):
    """A message from a client to a broker."""

    __slots__ = ()


class Response(Message):
    """A broker's response to a request."""

    __slots__ = ()


def _compile_constructor(made: StructType) -> Any:
    """An `__init__` with one keyword per field; default lists and structs are never shared."""
    source = FunctionText("__init__", f"{made.__name__}, constructor")
    parameters = ["unknown_tags=()"]
    source.line("self.unknown_tags = unknown_tags")
    for name, field in made.FIELDS.items():
        if field.default is None or not (field.is_array or field.is_struct):
            default, value = source.value("default", field.default), name
        else:
            fresh = "[]" if field.is_array else f"{source.value('make', field.kind)}()"
            default, value = "MISSING", f"{fresh} if {name} is MISSING else {name}"
        parameters.append(f"{name}={default}")
        source.line(f"self.{name} = {value}")
    return source.compile(f"self, *, {', '.join(parameters)}", MISSING=_MISSING)
