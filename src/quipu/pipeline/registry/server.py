"""A small schema registry with Confluent's HTTP interface, for tests and for one machine.

    GET     /subjects[?deleted=true]               PUT GET   /config
    GET     /subjects/S/versions                   PUT GET DELETE   /config/S
    GET     /subjects/S/versions/N[/schema]        POST   /compatibility/subjects/S/versions[/N]
    POST    /subjects/S                            GET    /schemas/ids/I[/schema | /versions]
    POST    /subjects/S/versions                   GET    /schemas/types
    DELETE  /subjects/S[/versions/N][?permanent=true]

It keeps all schemas in memory, and with a path also in one JSON file, which is replaced as a whole
before a change is acknowledged.  It listens on loopback only, unless another host is given.
Limits on its content are in `store`, on connections in `http_server`.
"""

import base64
import hmac
import json
import socket
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Final, NamedTuple, Self
from urllib.parse import parse_qs, unquote, urlsplit

from quipu.pipeline.durable import replace_file
from quipu.pipeline.registry.client import CONTENT_TYPE
from quipu.pipeline.registry.http_server import REQUEST_SECONDS, BoundedHttpServer
from quipu.pipeline.registry.store import KINDS, Denied, Store, is_number, schema_of

BODY_SIZE_MAX: Final = 2 << 20

Json = Any  # the content of a request or a response


class NoRegistryFile(ValueError):
    """A file that is no registry; the message names it."""


class RegistryRequest(NamedTuple):
    """A request whose path has matched: its variable parts, its query, its body."""

    parts: tuple[str, ...]
    query: Mapping[str, str]
    body: Mapping[str, Json]

    def flag(self, name: str) -> bool:
        return self.query.get(name) == "true"


class RegistryServer:
    """A registry that serves from construction until `close`."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0, *, path: Path | None = None,
                 credentials: tuple[str, str] | None = None) -> None:
        self._path = path
        self._lock = Lock()
        self.store = Store()
        if path is not None and path.exists():
            self.store = _load(path)
        self._http = BoundedHttpServer((host, port), _handler(self, credentials))
        self._thread = Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        host, port = self._http.server_address[:2]
        return f"http://{host!s}:{port}"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def note_response(self, connection: socket.socket) -> None:
        """Restart the time of a connection that got its response."""
        self._http.note_response(connection)

    def respond(self, method: str, target: str, body: Mapping[str, Json]) -> Json:
        """The content of the response to a request; raises Denied for an error."""
        address = urlsplit(target)
        path = tuple(unquote(part) for part in address.path.strip("/").split("/") if part)
        query = {name: values[-1] for name, values in parse_qs(address.query).items()}
        known = False
        for pattern, methods in _ROUTES.items():
            parts = _matched(pattern, path)
            if parts is None:
                continue
            known = True
            if method in methods:
                with self._lock:
                    result = methods[method](self.store, RegistryRequest(parts, query, body))
                    if method != "GET":
                        self._save()
                return result
        raise Denied(405 if known else 404, 405 if known else 404,
                      f"HTTP {405 if known else 404}: {method} {address.path[:200]}")

    def _save(self) -> None:
        if self._path is not None:
            replace_file(self._path, self.store.to_json().encode(), 0o600)


def _load(path: Path) -> Store:
    try:
        return Store.from_json(path.read_text())
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise NoRegistryFile(f"{path} holds no registry, or is damaged ({error}); it is "
                             "unchanged") from None


def _handler(server: RegistryServer,
             credentials: tuple[str, str] | None) -> type[BaseHTTPRequestHandler]:
    token = None
    if credentials is not None:
        token = "Basic " + base64.b64encode(":".join(credentials).encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = REQUEST_SECONDS

        def _serve(self) -> None:
            try:
                body = self._body()
                given = self.headers.get("Authorization", "")
                if token is not None and not hmac.compare_digest(given.encode(), token.encode()):
                    raise Denied(401, 401, "Unauthorized")
                status, result = 200, server.respond(self.command, self.path, body)
            except Denied as refused:
                status = refused.status
                result = {"error_code": refused.code, "message": refused.message}
            except Exception as error:  # noqa: BLE001 a bug must fail only this request
                status = 500
                result = {"error_code": 50001, "message": f"{type(error).__name__}"}
            data = json.dumps(result).encode()
            self.send_response(status)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
            server.note_response(self.connection)

        do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815 named by http.server

        def _body(self) -> Mapping[str, Json]:
            if "Transfer-Encoding" in self.headers:
                self.close_connection = True
                raise Denied(411, 411, "a body is sent with its length")
            size = self.headers.get("Content-Length", "0")
            if not is_number(size) or int(size) > BODY_SIZE_MAX:
                self.close_connection = True
                raise Denied(413, 413, f"a body has at most {BODY_SIZE_MAX} bytes")
            data = self.rfile.read(int(size))
            if len(data) < int(size):
                self.close_connection = True
            if not data:
                return {}
            try:
                body = json.loads(data)
            except (ValueError, RecursionError):
                body = None
            if not isinstance(body, dict):
                raise Denied(400, 400, "the body is no JSON object")
            return body

        def log_message(self, *_: object) -> None:
            """Requests are not logged."""

    return Handler


def _matched(pattern: str, path: tuple[str, ...]) -> tuple[str, ...] | None:
    """The parts of a path at the `*` of a pattern; None if the path does not match."""
    wanted = pattern.split("/") if pattern else []
    if len(wanted) != len(path) or any(
            want not in ("*", part) for want, part in zip(wanted, path, strict=True)):
        return None
    return tuple(part for want, part in zip(wanted, path, strict=True) if want == "*")


def _shown(store: Store, schema_id: int) -> dict[str, Json]:
    schema = store.schema(schema_id)
    shown: dict[str, Json] = {"schema": schema.text}
    if schema.kind != "AVRO":
        shown["schemaType"] = schema.kind
    if schema.references:
        shown["references"] = [vars(reference) for reference in schema.references]
    return shown


def _id(request: RegistryRequest) -> int:
    text = request.parts[0]
    if not is_number(text):
        raise Denied(404, 404, "HTTP 404 Not Found")
    return int(text)


def _version(store: Store, request: RegistryRequest) -> dict[str, Json]:
    subject, number = request.parts
    version = store.version(subject, number, deleted=request.flag("deleted"))
    return {"subject": subject, "version": version.number, "id": version.schema_id,
            **_shown(store, version.schema_id)}


def _look_up(store: Store, request: RegistryRequest) -> dict[str, Json]:
    version = store.find(request.parts[0], schema_of(request.body))
    return {"subject": request.parts[0], "version": version.number, "id": version.schema_id,
            **_shown(store, version.schema_id)}


def _delete(store: Store, request: RegistryRequest) -> Json:
    gone = store.delete(*request.parts, permanent=request.flag("permanent"))
    return gone if len(request.parts) == 1 else gone[0]


def _compatibility(store: Store, request: RegistryRequest) -> dict[str, Json]:
    subject, number = (*request.parts, None)[:2]
    assert subject is not None
    found = store.complaints(subject, schema_of(request.body), number)
    shown = {"messages": found} if request.flag("verbose") else {}
    return {"is_compatible": not found, **shown}


def _level(store: Store, request: RegistryRequest) -> dict[str, Json]:
    subject = "".join(request.parts)
    if subject and subject not in store.levels and not request.flag("defaultToGlobal"):
        raise Denied(404, 40408, f"Subject '{subject}' does not have subject-level compatibility "
                      "configured")
    return {"compatibilityLevel": store.level(subject)}


def _set_level(store: Store, request: RegistryRequest) -> dict[str, Json]:
    level = str(request.body.get("compatibility", "")).upper()
    store.set_level("".join(request.parts), level)
    return {"compatibility": level}


def _unset_level(store: Store, request: RegistryRequest) -> str:
    return store.levels.pop("".join(request.parts), store.level())


def _numbers(store: Store, request: RegistryRequest) -> list[int]:
    found = store.versions(request.parts[0], deleted=request.flag("deleted"))
    return [version.number for version in found]


def _users(store: Store, request: RegistryRequest) -> list[dict[str, Json]]:
    return [{"subject": subject, "version": number}
            for subject, number in store.users_of(_id(request))]


def _bare(store: Store, schema_id: int) -> Json:
    schema = store.schema(schema_id)
    if schema.kind == "PROTOBUF":
        return schema.text
    try:
        return json.loads(schema.text)
    except (ValueError, RecursionError):  # a bare name, or a file of an older version
        return schema.text


def _bare_version(store: Store, request: RegistryRequest) -> Json:
    subject, number = request.parts
    return _bare(store, store.version(subject, number).schema_id)


def _subjects(store: Store, request: RegistryRequest) -> list[str]:
    return store.listed(deleted=request.flag("deleted"))


def _register(store: Store, request: RegistryRequest) -> dict[str, Json]:
    return {"id": store.register(request.parts[0], schema_of(request.body))}


_ROUTES: Final[Mapping[str, Mapping[str, Callable[[Store, RegistryRequest], Json]]]] = {
    "": {"GET": lambda _store, _request: {}},
    "subjects": {"GET": _subjects},
    "subjects/*": {"POST": _look_up, "DELETE": _delete},
    "subjects/*/versions": {"GET": _numbers, "POST": _register},
    "subjects/*/versions/*": {"GET": _version, "DELETE": _delete},
    "subjects/*/versions/*/schema": {"GET": _bare_version},
    "schemas/types": {"GET": lambda _store, _request: list(KINDS)},
    "schemas/ids/*": {"GET": lambda store, request: _shown(store, _id(request))},
    "schemas/ids/*/schema": {"GET": lambda store, request: _bare(store, _id(request))},
    "schemas/ids/*/versions": {"GET": _users},
    "config": {"GET": _level, "PUT": _set_level},
    "config/*": {"GET": _level, "PUT": _set_level, "DELETE": _unset_level},
    "mode": {"GET": lambda _store, _request: {"mode": "READWRITE"}},
    "compatibility/subjects/*/versions": {"POST": _compatibility},
    "compatibility/subjects/*/versions/*": {"POST": _compatibility},
}
