"""A client of schema registries that speak Confluent's HTTP interface.

    by_id(id)                    the schema that a message names in its first five bytes
    version(subject, n|latest)   the schema of a subject
    register(subject, schema)    a new version; the id of an old one if the schema is there already
    texts_of(references)         schemas that a schema refers to, and those they refer to

What an id stands for never changes, so answers are kept; that there is none, or none that can be
used, is kept for a little while, so that a topic full of bad messages asks once, not once per
message.  A registry that does not answer is asked again, a few times, within `timeout.ms` in all,
however slowly its bytes come; then it is an error, for a moment without asking: whoever waits for
the schema fails and retries, and no message is blamed for it.

Options, besides the URL: `username`, `password` (or in the URL), `ssl.ca.location`,
`ssl.certificate.location`, `ssl.key.location`, `timeout.ms`.
"""

import base64
import contextlib
import http.client
import json
import queue
import re
import socket
import ssl
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeVar
from urllib.parse import SplitResult, quote, unquote, urlsplit

from quipu.pipeline.formats.specs import Registry

BODY_SIZE_MAX: Final = 4 << 20
TEXTS_SIZE_MAX: Final = 16 << 20  # of all schemas that one refers to
ATTEMPTS_MAX: Final = 4
BACK_OFF: Final = 0.1  # seconds, doubled each time
TIMEOUT_MS: Final = 10_000
KEPT_MAX: Final = 10_000
MISSING_KEPT: Final = 30.0  # seconds
SILENCE_KEPT: Final = 2.0  # seconds
REFERENCES_MAX: Final = 200
STUCK_MAX: Final = 8  # requests that nobody waits for any more

OPTIONS: Final = frozenset({"username", "password", "ssl.ca.location", "ssl.certificate.location",
                            "ssl.key.location", "timeout.ms"})
CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_BUSY: Final = frozenset({429, 500, 502, 503, 504})

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class RegistryError(Exception):
    """Something that a registry did not do; the message says what."""


class SchemaNotFound(RegistryError):
    """The registry does not have it."""


class RegistryRefused(RegistryError):
    """The registry understood, and said no."""


class SchemaUnusable(RegistryError):
    """The registry has it, and it cannot be used: too large, too many references, no schema."""


class RegistryUnavailable(RegistryError):
    """There is no answer; asking later may help."""


class Reference(NamedTuple):
    """A schema that another one uses, under the name by which it does."""

    name: str
    subject: str
    version: int


class Registered(NamedTuple):
    """A schema as the registry has it."""

    schema_id: int
    schema: str
    kind: str = "AVRO"  # or PROTOBUF, JSON
    references: tuple[Reference, ...] = ()
    version: int = 0  # 0 where it was asked for by id


class RegistryClient:
    """One registry.  Answers are kept for the life of the client."""

    def __init__(self, registry: Registry, clock: Callable[[], float] = time.monotonic,
                 sleep: Callable[[float], None] = time.sleep) -> None:
        self._http = _Http(registry)
        self._clock, self._sleep = clock, sleep
        self._by_id: OrderedDict[int, Registered] = OrderedDict()
        self._by_version: OrderedDict[tuple[str, int], Registered] = OrderedDict()
        self._missing: OrderedDict[str, _Missing] = OrderedDict()  # by path
        self._silent = _Missing(0.0, "")

    def by_id(self, schema_id: int) -> Registered:
        """The schema of an id; SchemaNotFound if there is none."""
        found = self._by_id.get(schema_id)
        if found is None:
            answer = self._look_up(f"/schemas/ids/{schema_id}",
                                   f"schema id {schema_id} is not in the registry")
            found = _registered(answer, schema_id)
            _keep(self._by_id, schema_id, found)
        return found

    def version(
        self, subject: str, version: int | str = "latest", *, deadline: float | None = None,
    ) -> Registered:
        """A version of a subject; SchemaNotFound if there is none."""
        if isinstance(version, int) and (subject, version) in self._by_version:
            return self._by_version[subject, version]
        path = f"/subjects/{quote(subject, safe='')}/versions/{version}"
        # What is the latest may change at any time: somebody waits for the answer as it is now.
        answer = (self._look_up(path, deadline=deadline) if isinstance(version, int)
                  else self._ask("GET", path, deadline=deadline))
        found = _registered(answer, _whole(answer, "id"))
        _keep(self._by_version, (subject, found.version), found)
        return found

    def _look_up(
        self, path: str, words: str = "", *, deadline: float | None = None,
    ) -> Mapping[str, object]:
        """An answer that never changes; that there is none is kept for a while."""
        known = self._missing.get(path)
        if known is not None and known.until > self._clock():
            raise known.error(known.text)
        try:
            answer = self._ask("GET", path, deadline=deadline)
            _registered(answer, 0)
        except (SchemaNotFound, SchemaUnusable) as error:
            text = words if words and isinstance(error, SchemaNotFound) else str(error)
            _keep(self._missing, path,
                  _Missing(self._clock() + MISSING_KEPT, text, type(error)))
            raise type(error)(text) from None
        return answer

    def register(self, subject: str, schema: str, kind: str = "AVRO",
                 references: Sequence[Reference] = ()) -> int:
        """The id of this schema under this subject; RegistryRefused if it is not compatible."""
        body: dict[str, object] = {"schema": schema}
        if kind != "AVRO":
            body["schemaType"] = kind
        if references:
            body["references"] = [reference._asdict() for reference in references]
        answer = self._ask("POST", f"/subjects/{quote(subject, safe='')}/versions", body)
        return _whole(answer, "id")

    def texts_of(self, references: Iterable[Reference]) -> dict[str, str]:
        """Referenced schemas by the names under which they are used; what they use comes first.

        All of them come within `timeout.ms`; those that came are kept for the next try.
        """
        found: dict[str, str] = {}
        self._collect(references, found, [], self._clock() + self._http.timeout)
        if sum(map(len, found.values())) > TEXTS_SIZE_MAX:
            raise SchemaUnusable("the schemas that a schema refers to have more than "
                                 f"{TEXTS_SIZE_MAX} characters")
        return found

    def _collect(self, references: Iterable[Reference], found: dict[str, str],
                 inside: list[Reference], deadline: float) -> None:
        for reference in references:
            if reference.name in found or reference in inside:
                continue
            if len(found) + len(inside) >= REFERENCES_MAX:
                raise SchemaUnusable(f"a schema refers to more than {REFERENCES_MAX} others")
            registered = self.version(reference.subject, reference.version, deadline=deadline)
            self._collect(registered.references, found, [*inside, reference], deadline)
            found[reference.name] = registered.schema

    def _ask(
        self, method: str, path: str, body: object = None, *, deadline: float | None = None,
    ) -> Mapping[str, object]:
        now = self._clock()
        if self._silent.until > now:
            raise RegistryUnavailable(self._silent.text)
        data = None if body is None else json.dumps(body).encode()
        deadline = now + self._http.timeout if deadline is None else deadline
        trouble = "no answer in time"
        for attempt in range(ATTEMPTS_MAX):
            if attempt:
                self._sleep(BACK_OFF * 2 ** (attempt - 1))
            left = deadline - self._clock()
            if left <= 0:
                break
            try:
                status, answer = _within(left, self._http.request(method, path, data))
            except (OSError, http.client.HTTPException) as error:
                trouble = f"{type(error).__name__}: {error}"
                continue
            if status not in _BUSY:
                return _checked(status, answer)
            trouble = f"HTTP status {status}"
        text = f"schema registry {self._http.shown}: {trouble}"
        self._silent = _Missing(self._clock() + SILENCE_KEPT, text)
        raise RegistryUnavailable(text)


class _Missing(NamedTuple):
    """What is known not to be there."""

    until: float
    text: str
    error: type[RegistryError] = SchemaNotFound


_stuck = threading.BoundedSemaphore(STUCK_MAX)


def _within(seconds: float, request: "_Request") -> tuple[int, bytes]:
    """Status and body, within a time that no slow peer, name server or handshake can extend.

    Timeouts of sockets are about one read: somebody who sends a byte now and then is never late.
    """
    if not _stuck.acquire(timeout=seconds):
        raise TimeoutError("too many requests to schema registries wait for an answer")
    done: queue.SimpleQueue[tuple[int, bytes] | BaseException] = queue.SimpleQueue()

    def run() -> None:
        try:
            done.put(request.answer())
        except BaseException as error:  # noqa: BLE001 raised where somebody waits for it
            done.put(error)
        finally:
            _stuck.release()

    threading.Thread(target=run, name="registry", daemon=True).start()
    try:
        result = done.get(timeout=seconds)
    except queue.Empty:
        request.hang_up()
        raise TimeoutError(f"no answer within {seconds:.1f} s") from None
    if isinstance(result, TimeoutError):  # of the socket, which has the same patience
        raise TimeoutError(f"no answer within {seconds:.1f} s") from result
    if isinstance(result, BaseException):
        raise result
    return result


def check_registry(registry: Registry) -> None:
    """Raise `RegistryRefused` if nobody can be asked like this; nobody is, and no file is read."""
    unknown = sorted(set(registry.options) - OPTIONS)
    if unknown:
        raise RegistryRefused(f"unknown option of a schema registry: {unknown[0]!r}; there are "
                              f"{', '.join(sorted(OPTIONS))}")
    _split(registry.url)
    _timeout(registry.options)


@lru_cache(maxsize=64)
def _client(url: str, options: tuple[tuple[str, str], ...]) -> RegistryClient:
    return RegistryClient(Registry(url, dict(options)))


def client_for(registry: Registry) -> RegistryClient:
    """The client of a registry: one per process, so that all share what it has learned."""
    return _client(registry.url, tuple(sorted(registry.options.items())))


class _Http:
    """One request, one connection: schemas are asked for once, and rarely."""

    def __init__(self, registry: Registry) -> None:
        check_registry(registry)
        parts = _split(registry.url)
        self._host, self._port = parts.hostname or "", parts.port
        self._path = parts.path.rstrip("/")
        self.shown = f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}"
        self.timeout = _timeout(registry.options)
        self._tls = _tls(registry.options) if parts.scheme == "https" else None
        self._headers = {"Accept": f"{CONTENT_TYPE}, application/json"}
        username = registry.options.get("username", unquote(parts.username or ""))
        password = registry.options.get("password", unquote(parts.password or ""))
        if username:
            token = base64.b64encode(f"{username}:{password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {token}"

    def request(self, method: str, path: str, body: bytes | None) -> "_Request":
        headers = self._headers if body is None else {
            **self._headers, "Content-Type": CONTENT_TYPE}
        return _Request(self._connection(), method, self._path + path, body, headers, self.shown)

    def _connection(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=self.timeout)
        return http.client.HTTPSConnection(self._host, self._port, timeout=self.timeout,
                                           context=self._tls)


class _Request(NamedTuple):
    """One request, not sent yet."""

    connection: http.client.HTTPConnection
    method: str
    path: str
    body: bytes | None
    headers: Mapping[str, str]
    shown: str

    def answer(self) -> tuple[int, bytes]:
        connection = self.connection
        try:
            connection.request(self.method, self.path, self.body, self.headers)
            with connection.getresponse() as response:
                data = response.read(BODY_SIZE_MAX + 1)
        finally:
            connection.close()
        if len(data) > BODY_SIZE_MAX:
            raise SchemaUnusable(f"schema registry {self.shown}: an answer of more than "
                                 f"{BODY_SIZE_MAX} bytes")
        return response.status, data

    def hang_up(self) -> None:
        """Let whoever reads the answer find that it has ended."""
        found = self.connection.sock
        if found is not None:
            with contextlib.suppress(OSError):
                found.shutdown(socket.SHUT_RDWR)


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return parts
    except ValueError:
        pass  # no port, or brackets that are not closed
    raise RegistryRefused("the URL of a schema registry starts with http:// or https://, and names "
                          f"a host; not {url.rpartition('@')[2][:200]!r}")


def _timeout(options: Mapping[str, str]) -> float:
    timeout_ms = options.get("timeout.ms", str(TIMEOUT_MS))
    if not re.fullmatch(r"[1-9][0-9]{0,6}", timeout_ms):
        raise RegistryRefused(f"timeout.ms is a number from 1 to 9999999, not {timeout_ms[:40]!r}")
    return int(timeout_ms) / 1000


def _tls(options: Mapping[str, str]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=options.get("ssl.ca.location"))
        if "ssl.certificate.location" in options:
            context.load_cert_chain(options["ssl.certificate.location"],
                                    options.get("ssl.key.location"))
    except (OSError, ValueError) as error:
        files = ", ".join(sorted(options[name] for name in options if name.startswith("ssl.")))
        raise RegistryRefused(f"no certificates of a schema registry in {files}: {error}") from None
    return context


def _checked(status: int, answer: bytes) -> Mapping[str, object]:
    try:
        content = json.loads(answer)
    except (ValueError, RecursionError):
        content = None
    if status == 200 and isinstance(content, dict):
        return content
    message = content.get("message") if isinstance(content, dict) else None
    if status == 404 and isinstance(content, dict) and "error_code" in content:
        raise SchemaNotFound(f"{message or 'not found'}"[:1000])
    raise RegistryRefused(f"the schema registry answers {status}: {message or 'no JSON'}"[:1000])


def _registered(answer: Mapping[str, object], schema_id: int) -> Registered:
    schema, kind = answer.get("schema"), answer.get("schemaType", "AVRO")
    references = answer.get("references") or []
    if isinstance(references, list) and len(references) > REFERENCES_MAX:
        raise SchemaUnusable(f"a schema refers to more than {REFERENCES_MAX} others")
    if not isinstance(schema, str) or not isinstance(kind, str) or not isinstance(references, list):
        raise SchemaUnusable("the schema registry answers without a schema")
    version = answer.get("version", 0)
    return Registered(schema_id, schema, kind, tuple(_reference(each) for each in references),
                      version if isinstance(version, int) else 0)


def _reference(answer: object) -> Reference:
    if isinstance(answer, dict):
        name, subject = answer.get("name"), answer.get("subject")
        if isinstance(name, str) and isinstance(subject, str):
            return Reference(name, subject, _whole(answer, "version"))
    raise SchemaUnusable("the schema registry answers with a reference that is none")


def _whole(answer: Mapping[str, object], name: str) -> int:
    value = answer.get(name)
    if not isinstance(value, int):
        raise SchemaUnusable(f"the schema registry answers without {name!r}")
    return value


def _keep(kept: "OrderedDict[_Key, _Value]", key: _Key, value: _Value) -> None:
    kept[key] = value
    if len(kept) > KEPT_MAX:
        kept.popitem(last=False)
