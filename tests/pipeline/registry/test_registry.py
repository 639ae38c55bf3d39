"""The registry's server and client against each other, over real sockets."""

import contextlib
import http.client
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from quipu.pipeline.formats.avro.format import whole_schema
from quipu.pipeline.formats.avro.schema import columns_of, parse
from quipu.pipeline.formats.specs import Registry
from quipu.pipeline.registry.client import (
    BODY_SIZE_MAX,
    KEPT_MAX,
    MISSING_KEPT,
    RegistryClient,
    RegistryRefused,
    RegistryUnavailable,
    SchemaNotFound,
    SchemaReference,
    SchemaUnusable,
    client_for,
)
from quipu.pipeline.registry.server import NoRegistryFile, RegistryServer

V1 = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}
V2 = {"type": "record", "name": "r", "fields": [
    {"name": "a", "type": "long"}, {"name": "b", "type": ["null", "string"], "default": None}]}
BAD = {"type": "record", "name": "r", "fields": [
    {"name": "a", "type": "int"}, {"name": "c", "type": "string"}]}


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as server:
        yield server


def client_of(server: RegistryServer, **options: str) -> RegistryClient:
    return RegistryClient(Registry(server.url, options), sleep=lambda _: None)


def ask(server: RegistryServer, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=60)
    data = None if body is None else json.dumps(body)
    connection.request(method, path, data)
    response = connection.getresponse()
    answer = response.status, json.loads(response.read())
    connection.close()
    return answer


def test_schemas_are_found_by_id_and_by_version(server: RegistryServer) -> None:
    """I10: pipeline.R2: what is registered is there under its id, its number, and as the latest."""
    client = client_of(server)
    first = client.register("t/opic-value", json.dumps(V1))
    second = client.register("t/opic-value", json.dumps(V2))

    assert (first, second) == (1, 2)
    assert client.register("t/opic-value", json.dumps(V1)) == first
    assert client.register("other", json.dumps(V1)) == first
    assert json.loads(client.by_id(first).schema) == V1
    assert client.version("t/opic-value", 1).schema_id == first
    assert client.version("t/opic-value").version == 2
    assert ask(server, "GET", "/subjects") == (200, ["other", "t/opic-value"])
    assert ask(server, "GET", "/schemas/ids/1/versions")[1] == [
        {"subject": "other", "version": 1}, {"subject": "t/opic-value", "version": 1}]


def test_what_is_not_there_is_said_in_confluents_codes(server: RegistryServer) -> None:
    client = client_of(server)
    client.register("s", json.dumps(V1))

    with pytest.raises(SchemaNotFound, match="Subject 'none' not found"):
        client.version("none")
    with pytest.raises(SchemaNotFound, match="Version 7 not found"):
        client.version("s", 7)
    with pytest.raises(SchemaNotFound, match="schema id 9 is not in the registry"):
        client.by_id(9)
    codes = [ask(server, *request)[1]["error_code"] for request in [
        ("GET", "/subjects/none/versions"), ("GET", "/subjects/s/versions/7"),
        ("GET", "/schemas/ids/9"), ("GET", "/subjects/s/versions/x"),
        ("POST", "/subjects/s/versions", {"schema": "{"}),
        ("PUT", "/config", {"compatibility": "odd"}), ("GET", "/nothing"), ("PUT", "/subjects")]]
    assert codes == [40401, 40402, 40403, 42202, 42201, 42203, 404, 405]


def test_a_schema_that_old_data_does_not_fit_is_refused(server: RegistryServer) -> None:
    client = client_of(server)
    client.register("s", json.dumps(V1))

    with pytest.raises(RegistryRefused, match=r"409: .*Reader field `r.c` is not in the writer"):
        client.register("s", json.dumps(BAD))
    path = "/compatibility/subjects/s/versions/latest"
    assert ask(server, "POST", path, {"schema": json.dumps(BAD)})[1] == {"is_compatible": False}
    assert ask(server, "POST", path, {"schema": json.dumps(V2)})[1] == {"is_compatible": True}


@pytest.mark.parametrize(("level", "taken"), [
    ("NONE", True), ("BACKWARD", False), ("FORWARD", True), ("FULL", False)])
def test_the_level_decides_who_must_read_whom(
        server: RegistryServer, level: str, *, taken: bool) -> None:
    assert ask(server, "PUT", "/config/s", {"compatibility": level})[0] == 200
    client = client_of(server)
    client.register("s", json.dumps(V1))
    status, _ = ask(server, "POST", "/subjects/s/versions", {"schema": json.dumps(BAD)})
    assert status == (200 if taken else 409)
    assert ask(server, "GET", "/config/s")[1] == {"compatibilityLevel": level}
    assert ask(server, "GET", "/config")[1] == {"compatibilityLevel": "BACKWARD"}


def test_only_transitive_levels_look_at_all_versions(server: RegistryServer) -> None:
    """The last version has a default for `c`, the first has no `c`."""
    middle = {**V1, "fields": [*V1["fields"], {"name": "c", "type": "string", "default": ""}]}
    client = client_of(server)
    client.register("s", json.dumps(V1))
    client.register("s", json.dumps(middle))
    ask(server, "PUT", "/config", {"compatibility": "BACKWARD_TRANSITIVE"})
    with pytest.raises(RegistryRefused):
        client.register("s", json.dumps(BAD))
    ask(server, "PUT", "/config", {"compatibility": "BACKWARD"})
    assert client.register("s", json.dumps(BAD)) == 3


def test_deletes_are_soft(server: RegistryServer) -> None:
    """pipeline.R1, pipeline.R3: a deleted version is not listed; its schema is found by id."""
    client = client_of(server)
    client.register("s", json.dumps(V1))
    client.register("s", json.dumps(V2))

    assert ask(server, "DELETE", "/subjects/s/versions/2") == (200, 2)
    assert ask(server, "GET", "/subjects/s/versions") == (200, [1])
    assert client_of(server).by_id(2).schema == json.dumps(V2)
    assert ask(server, "DELETE", "/subjects/s?permanent=true")[0] == 404
    assert ask(server, "DELETE", "/subjects/s") == (200, [1])
    assert ask(server, "GET", "/subjects") == (200, [])
    assert ask(server, "GET", "/subjects?deleted=true") == (200, ["s"])
    client.register("s", json.dumps(V2))
    assert ask(server, "GET", "/subjects/s/versions") == (200, [3])


def test_references_are_followed_and_written_out(server: RegistryServer) -> None:
    """I10: a schema may use types of other subjects."""
    client = client_of(server)
    client.register("money", json.dumps(
        {"type": "record", "name": "Money", "namespace": "x", "fields": [
            {"name": "cents", "type": "long"}]}))
    client.register("line", json.dumps(
        {"type": "record", "name": "Line", "namespace": "x", "fields": [
            {"name": "price", "type": "Money"}, {"name": "tax", "type": "Money"}]}),
        references=[SchemaReference("x.Money", "money", 1)])
    order = json.dumps({"type": "record", "name": "Order", "fields": [
        {"name": "lines", "type": {"type": "array", "items": "x.Line"}},
        {"name": "total", "type": "x.Money"}]})
    references = [SchemaReference("x.Line", "line", 1)]
    schema_id = client.register("order", order, references=references)

    text = whole_schema(client, client.by_id(schema_id))

    assert [(column.name, str(column.type)) for column in columns_of(parse(text))] == [
        ("lines", "list<item: struct<price: struct<cents: int64>, tax: struct<cents: int64>>>"),
        ("total", "struct<cents: int64>")]
    with pytest.raises(RegistryRefused, match="is not defined"):
        client.register("order2", order)


def test_everything_survives_in_one_file(tmp_path: Path) -> None:
    path = tmp_path / "registry.json"
    with RegistryServer(path=path) as server:
        client_of(server).register("s", json.dumps(V1))
        ask(server, "PUT", "/config/s", {"compatibility": "FULL"})
    with RegistryServer(path=path) as server:
        client = client_of(server)
        assert client.version("s").schema_id == 1
        assert ask(server, "GET", "/config/s")[1] == {"compatibilityLevel": "FULL"}
        assert client.register("other", json.dumps(V2)) == 2
    assert list(tmp_path.iterdir()) == [path]  # no half-written file is left


def test_unknown_ids_are_asked_for_once_in_a_while(server: RegistryServer) -> None:
    """A topic full of bad messages does not hammer the registry; a schema that comes later is
    found.
    """
    now = [0.0]
    client = RegistryClient(Registry(server.url), clock=lambda: now[0])
    asked: list[Any] = []
    inner = client._http.request
    counted: Any = client._http
    counted.request = lambda *request: asked.append(request) or inner(*request)
    for _ in range(5):
        with pytest.raises(SchemaNotFound):
            client.by_id(1)
    assert len(asked) == 1
    client_of(server).register("s", json.dumps(V1))
    now[0] += MISSING_KEPT + 1
    for _ in range(5):
        assert client.by_id(1).schema_id == 1
    assert len(asked) == 2
    assert KEPT_MAX >= 1000


def test_a_password_is_asked_for_and_given() -> None:
    with RegistryServer(credentials=("me", "se:cret")) as server:
        with pytest.raises(RegistryRefused, match="401"):
            client_of(server).by_id(1)
        client = client_of(server, username="me", password="se:cret")
        assert client.register("s", json.dumps(V1)) == 1
        in_url = server.url.replace("http://", "http://me:se%3Acret@")
        assert RegistryClient(Registry(in_url)).by_id(1).schema_id == 1


def test_a_registry_that_is_away_is_no_fault_of_the_schema() -> None:
    with RegistryServer() as server:
        url = server.url
    slept: list[float] = []
    client = RegistryClient(Registry(url), sleep=slept.append)
    with pytest.raises(RegistryUnavailable, match=r"ConnectionRefusedError"):
        client.by_id(1)
    assert slept == [0.1, 0.2, 0.4]


def test_https_means_tls(server: RegistryServer) -> None:
    """A server that does not speak it is not talked to."""
    url = server.url.replace("http", "https")
    client = RegistryClient(Registry(url, {"timeout.ms": "5000"}), sleep=lambda _: None)
    with pytest.raises(RegistryUnavailable, match="SSLError"):
        client.by_id(1)


@pytest.mark.parametrize("size", [str(1 << 40), "0" * 12 + "9" * 12, "1" * 5000, "-1", "x"])
def test_bodies_are_bounded(server: RegistryServer, size: str) -> None:
    """A length is looked at, all of it, before anything of that length is read."""
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=10)
    connection.putrequest("POST", "/subjects/s/versions")
    connection.putheader("Content-Length", size.encode())
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()


def test_answers_are_bounded() -> None:
    """A registry that answers without end is not listened to."""
    class Endless(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(b" " * (2 * BODY_SIZE_MAX))

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Endless) as http_server:
        thread = threading.Thread(target=http_server.handle_request)
        thread.start()
        client = RegistryClient(Registry(f"http://127.0.0.1:{http_server.server_port}"))
        with pytest.raises(SchemaUnusable, match="a response of more than"):
            client.by_id(1)
        thread.join()


@pytest.mark.parametrize(("url", "options", "message"), [
    ("localhost:8081", {}, "starts with http:// or https://"),
    ("me:secret@host", {}, "and names a host; not 'host'"),
    ("http://h:99999", {}, "and names a host; not 'http://h:99999'"),
    ("http://[::1", {}, "and names a host"),
    ("https://h", {"ssl.ca.location": "/no/such/file"}, "no certificates .* in /no/such/file: "),
    ("http://h", {"timeout.ms": "-1"}, "timeout.ms is a number from 1"),
    ("http://h", {"user": "x"}, "unknown option of a schema registry: 'user'"),
])
def test_a_wrong_registry_is_refused_at_once(
        url: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(RegistryRefused, match=message):
        RegistryClient(Registry(url, options))


def test_one_client_serves_a_process() -> None:
    """Schemas that one reader has asked for are known to the next."""
    assert client_for(Registry("http://h:1")) is client_for(Registry("http://h:1"))
    assert client_for(Registry("http://h:1")) is not client_for(Registry("http://h:2"))


def test_the_command_says_when_it_is_ready_and_ends_when_told(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "quipu.pipeline.registry", "--port", "0",
               "--file", str(tmp_path / "r.json")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("registry ready http://127.0.0.1:")
        client = RegistryClient(Registry(line.split()[2]))
        assert client.register("s", json.dumps(V1)) == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert (tmp_path / "r.json").exists()


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"schemas": [], "subjects": 1}', "\x00"])
def test_a_file_that_holds_no_registry_is_named_and_left_alone(
        tmp_path: Path, content: str) -> None:
    path = tmp_path / "registry.json"
    path.write_text(content)
    with pytest.raises(NoRegistryFile, match=r"registry\.json holds no registry"):
        RegistryServer(path=path)
    assert path.read_text() == content


def test_the_command_says_why_it_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("{")
    for given in (["--port", "99999"], ["--port", "0", "--file", str(tmp_path / "bad")]):
        ended = subprocess.run([sys.executable, "-m", "quipu.pipeline.registry", *given],
                               check=False, capture_output=True, text=True, timeout=60)
        assert ended.returncode == 1
        assert ended.stderr.startswith("registry: ")
        assert ended.stderr.count("\n") == 1
