"""A client of schema registries with Confluent's HTTP interface.

    by_id(id)                    the schema with the id in the first five bytes of a message
    version(subject, n|latest)   the schema of a subject
    register(subject, schema)    a new version; the id of the old one if it is registered already
    texts_of(references)         schemas that a schema refers to, and those they refer to

The schema of an id never changes, so schemas are cached; that there is none, or no usable one, is
cached for a short time, so that a topic full of bad messages causes one request, not one per
message.  A registry that does not response is asked again, a few times, within `timeout.ms` in all,
however slowly its bytes come; then RegistryUnavailable is raised, and for SILENCE_KEPT seconds
again without a request: the reader fails and retries, and no message counts as bad.

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
STUCK_MAX: Final = 8  # requests whose callers have timed out

OPTIONS: Final = frozenset({"username", "password", "ssl.ca.location", "ssl.certificate.location",
                            "ssl.key.location", "timeout.ms"})
CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_BUSY: Final = frozenset({429, 500, 502, 503, 504})

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class RegistryError(Exception):
    """A request to a registry failed; the message says why."""


class SchemaNotFound(RegistryError):
    """The registry does not have the schema."""


class RegistryRefused(RegistryError):
    """The registry refused the request, or its URL or options are wrong."""


class SchemaUnusable(RegistryError):
    """The schema cannot be used: too large, too many references, or malformed."""


class RegistryUnavailable(RegistryError):
    """The registry does not respond; a later request may succeed."""


class SchemaReference(NamedTuple):
    """A schema that another one uses, and the name by which it is used."""

    name: str
    subject: str
    version: int


class Registered(NamedTuple):
    """A schema of the registry."""

    schema_id: int
    schema: str
    kind: str = "AVRO"  # or PROTOBUF, JSON
    references: tuple[SchemaReference, ...] = ()
    version: int = 0  # 0 if it was looked up by id


class RegistryClient:
    """A client of one registry.  Schemas are cached for the life of the client."""

    def __init__(self, registry: Registry, clock: Callable[[], float] = time.monotonic,
                 sleep: Callable[[float], None] = time.sleep) -> None:
        self._http = _Http(registry)
        self._clock, self._sleep = clock, sleep
        self._by_id: OrderedDict[int, Registered] = OrderedDict()
        self._by_version: OrderedDict[tuple[str, int], Registered] = OrderedDict()
        self._missing: OrderedDict[str, _Missing] = OrderedDict()  # by path
        self._silent = _Missing(0.0, "")

    def by_id(self, schema_id: int) -> Registered:
        """The schema of an id; raises SchemaNotFound if there is none."""
        found = self._by_id.get(schema_id)
        if found is None:
            response = self._look_up(f"/schemas/ids/{schema_id}",
                                   f"schema id {schema_id} is not in the registry")
            found = _registered(response, schema_id)
            _keep(self._by_id, schema_id, found)
        return found

    def version(
        self, subject: str, version: int | str = "latest", *, deadline: float | None = None,
    ) -> Registered:
        """A version of a subject; raises SchemaNotFound if there is none."""
        if isinstance(version, int) and (subject, version) in self._by_version:
            return self._by_version[subject, version]
        path = f"/subjects/{quote(subject, safe='')}/versions/{version}"
        # The latest version may change at any time, so it is never taken from the cache.
        response = (self._look_up(path, deadline=deadline) if isinstance(version, int)
                  else self._ask("GET", path, deadline=deadline))
        found = _registered(response, _whole(response, "id"))
        _keep(self._by_version, (subject, found.version), found)
        return found

    def _look_up(
        self, path: str, words: str = "", *, deadline: float | None = None,
    ) -> Mapping[str, object]:
        """Request a schema that never changes; its absence is cached for MISSING_KEPT seconds."""
        known = self._missing.get(path)
        if known is not None and known.until > self._clock():
            raise known.error(known.text)
        try:
            response = self._ask("GET", path, deadline=deadline)
            _registered(response, 0)
        except (SchemaNotFound, SchemaUnusable) as error:
            text = words if words and isinstance(error, SchemaNotFound) else str(error)
            _keep(self._missing, path,
                  _Missing(self._clock() + MISSING_KEPT, text, type(error)))
            raise type(error)(text) from None
        return response

    def register(self, subject: str, schema: str, kind: str = "AVRO",
                 references: Sequence[SchemaReference] = ()) -> int:
        """Register a schema; returns its id, or raises RegistryRefused if it is incompatible."""
        body: dict[str, object] = {"schema": schema}
        if kind != "AVRO":
            body["schemaType"] = kind
        if references:
            body["references"] = [reference._asdict() for reference in references]
        response = self._ask("POST", f"/subjects/{quote(subject, safe='')}/versions", body)
        return _whole(response, "id")

    def texts_of(self, references: Iterable[SchemaReference]) -> dict[str, str]:
        """Referenced schemas by the names by which they are used, each after those that it uses.

        All of them must come within `timeout.ms`; those that came are cached for the next attempt.
        """
        found: dict[str, str] = {}
        self._collect(references, found, [], self._clock() + self._http.timeout)
        if sum(map(len, found.values())) > TEXTS_SIZE_MAX:
            raise SchemaUnusable("the schemas that a schema refers to have more than "
                                 f"{TEXTS_SIZE_MAX} characters")
        return found

    def _collect(self, references: Iterable[SchemaReference], found: dict[str, str],
                 inside: list[SchemaReference], deadline: float) -> None:
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
        trouble = "no response in time"
        for attempt in range(ATTEMPTS_MAX):
            if attempt:
                self._sleep(BACK_OFF * 2 ** (attempt - 1))
            left = deadline - self._clock()
            if left <= 0:
                break
            try:
                status, response = _within(left, self._http.request(method, path, data))
            except (OSError, http.client.HTTPException) as error:
                trouble = f"{type(error).__name__}: {error}"
                continue
            if status not in _BUSY:
                return _checked(status, response)
            trouble = f"HTTP status {status}"
        text = f"schema registry {self._http.shown}: {trouble}"
        self._silent = _Missing(self._clock() + SILENCE_KEPT, text)
        raise RegistryUnavailable(text)


class _Missing(NamedTuple):
    """An error that is raised without a request until a time."""

    until: float
    text: str
    error: type[RegistryError] = SchemaNotFound


_stuck = threading.BoundedSemaphore(STUCK_MAX)


def _within(seconds: float, request: "_Request") -> tuple[int, bytes]:
    """Status and body, within a time that no slow registry, name server or handshake can extend.

    A socket's time-out is for one read: a peer that sends a byte now and then never exceeds it.
    """
    if not _stuck.acquire(timeout=seconds):
        raise TimeoutError("too many requests to schema registries wait for a response")
    done: queue.SimpleQueue[tuple[int, bytes] | BaseException] = queue.SimpleQueue()

    def run() -> None:
        try:
            done.put(request.send())
        except BaseException as error:  # noqa: BLE001 raised by the caller, which waits for it
            done.put(error)
        finally:
            _stuck.release()

    threading.Thread(target=run, name="registry", daemon=True).start()
    try:
        result = done.get(timeout=seconds)
    except queue.Empty:
        request.hang_up()
        raise TimeoutError(f"no response within {seconds:.1f} s") from None
    if isinstance(result, TimeoutError):  # the socket has the same time-out
        raise TimeoutError(f"no response within {seconds:.1f} s") from result
    if isinstance(result, BaseException):
        raise result
    return result


def check_registry(registry: Registry) -> None:
    """Raise `RegistryRefused` if the URL or an option is wrong; no request is sent."""
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
    """The client of a registry: one per process, so that its cache is shared."""
    return _client(registry.url, tuple(sorted(registry.options.items())))


class _Http:
    """Makes requests, each with a connection of its own, because requests are rare."""

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

    def send(self) -> tuple[int, bytes]:
        connection = self.connection
        try:
            connection.request(self.method, self.path, self.body, self.headers)
            with connection.getresponse() as response:
                data = response.read(BODY_SIZE_MAX + 1)
        finally:
            connection.close()
        if len(data) > BODY_SIZE_MAX:
            raise SchemaUnusable(f"schema registry {self.shown}: a response of more than "
                                 f"{BODY_SIZE_MAX} bytes")
        return response.status, data

    def hang_up(self) -> None:
        """Shut the socket down, so that the thread that reads from it ends."""
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


def _checked(status: int, response: bytes) -> Mapping[str, object]:
    try:
        content = json.loads(response)
    except (ValueError, RecursionError):
        content = None
    if status == 200 and isinstance(content, dict):
        return content
    message = content.get("message") if isinstance(content, dict) else None
    if status == 404 and isinstance(content, dict) and "error_code" in content:
        raise SchemaNotFound(f"{message or 'not found'}"[:1000])
    raise RegistryRefused(
        f"the schema registry responds with {status}: {message or 'no JSON'}"[:1000])


def _registered(response: Mapping[str, object], schema_id: int) -> Registered:
    schema, kind = response.get("schema"), response.get("schemaType", "AVRO")
    references = response.get("references") or []
    if isinstance(references, list) and len(references) > REFERENCES_MAX:
        raise SchemaUnusable(f"a schema refers to more than {REFERENCES_MAX} others")
    if not isinstance(schema, str) or not isinstance(kind, str) or not isinstance(references, list):
        raise SchemaUnusable("the schema registry responds without a schema")
    version = response.get("version", 0)
    return Registered(schema_id, schema, kind, tuple(_reference(each) for each in references),
                      version if isinstance(version, int) else 0)


def _reference(response: object) -> SchemaReference:
    if isinstance(response, dict):
        name, subject = response.get("name"), response.get("subject")
        if isinstance(name, str) and isinstance(subject, str):
            return SchemaReference(name, subject, _whole(response, "version"))
    raise SchemaUnusable("the schema registry responds with a malformed reference")


def _whole(response: Mapping[str, object], name: str) -> int:
    value = response.get(name)
    if not isinstance(value, int):
        raise SchemaUnusable(f"the schema registry responds without {name!r}")
    return value


def _keep(kept: "OrderedDict[_Key, _Value]", key: _Key, value: _Value) -> None:
    kept[key] = value
    if len(kept) > KEPT_MAX:
        kept.popitem(last=False)
