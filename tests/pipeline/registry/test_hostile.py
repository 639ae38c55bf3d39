"""Registries that are slow or lie, and peers that would stop ours; over real sockets."""

import contextlib
import http.client
import json
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Self
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

from quipu.pipeline.formats.avro.format import MISSES_MAX, AvroFormat
from quipu.pipeline.formats.specs import Avro, Registry
from quipu.pipeline.registry import http_server
from quipu.pipeline.registry import store as limits
from quipu.pipeline.registry.client import (
    MISSING_KEPT,
    REFERENCES_MAX,
    SILENCE_KEPT,
    RegistryClient,
    RegistryRefused,
    RegistryUnavailable,
    SchemaNotFound,
    SchemaReference,
    SchemaUnusable,
)
from quipu.pipeline.registry.server import BODY_SIZE_MAX, RegistryServer
from quipu.pipeline.registry.store import (
    DEPTH_MAX,
    Denied,
    Store,
    StoredReference,
    StoredSchema,
    is_deep,
)
from tests.harness.progress import slowdown
from tests.pipeline.registry.test_registry import V1, ask, client_of

Serve = Callable[[socket.socket, threading.Event], None]


@contextlib.contextmanager
def serving(serve: Serve) -> Iterator[str]:
    """A peer that does to every connection what it is told; its URL."""
    stop = threading.Event()
    threads: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)

        def accept() -> None:
            while not stop.is_set():
                with contextlib.suppress(TimeoutError):
                    peer, _ = listener.accept()
                    threads.append(threading.Thread(target=run, args=(peer,)))
                    threads[-1].start()

        def run(peer: socket.socket) -> None:
            with peer, contextlib.suppress(OSError):
                serve(peer, stop)

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            stop.set()
            thread.join()
            for each in threads:
                each.join()


def answers(answer: Callable[[str], tuple[int, Any]]) -> tuple[Serve, list[str]]:
    """A registry that answers paths with JSON, and the paths that it was asked for."""
    asked: list[str] = []

    def serve(peer: socket.socket, _stop: threading.Event) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += peer.recv(65536)
        path = head.split(b" ", 2)[1].decode()
        asked.append(path)
        status, content = answer(path)
        data = json.dumps(content).encode()
        peer.sendall(b"HTTP/1.1 %d x\r\nContent-Length: %d\r\n\r\n%s" % (status, len(data), data))

    return serve, asked


def drips(peer: socket.socket, stop: threading.Event) -> None:
    """A byte now and then, for ever."""
    peer.recv(65536)
    peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n{")
    while not stop.wait(0.05):
        peer.sendall(b" ")


def is_mute(peer: socket.socket, stop: threading.Event) -> None:
    peer.recv(65536)
    stop.wait(60)


def framed(schema_id: int, data: bytes = b"\x0a") -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + data


# -- the client

@pytest.mark.parametrize("serve", [drips, is_mute])
def test_a_slow_registry_costs_its_timeout_and_no_more(serve: Serve) -> None:
    """K8: retries and all, however the bytes come; then the next fail at once, for a moment."""
    now = [0.0]
    with serving(serve) as url:
        client = RegistryClient(Registry(url, {"timeout.ms": "500"}),
                                clock=lambda: now[0] + time.monotonic())
        begun = time.monotonic()
        with pytest.raises(RegistryUnavailable, match="no response within"):
            client.by_id(1)
        taken = time.monotonic() - begun
        assert 0.4 < taken < 5
        begun = time.monotonic()
        for schema_id in range(1000):
            with pytest.raises(RegistryUnavailable, match="no response within"):
                client.by_id(schema_id)
        assert time.monotonic() - begun < 1
        now[0] += SILENCE_KEPT + 1
        begun = time.monotonic()
        with pytest.raises(RegistryUnavailable):
            client.by_id(1)
        assert time.monotonic() - begun > 0.3  # it was asked again


def test_a_registry_that_is_back_is_asked() -> None:
    """K8: that it was away is forgotten soon."""
    now = [0.0]
    with RegistryServer() as server:
        url = server.url
    client = RegistryClient(Registry(url), clock=lambda: now[0], sleep=lambda _: None)
    with pytest.raises(RegistryUnavailable, match="ConnectionRefusedError"):
        client.by_id(1)
    with RegistryServer(port=urlsplit(url).port or 0) as server:
        client_of(server).register("s", json.dumps(V1))
        now[0] += SILENCE_KEPT + 0.1
        assert client.by_id(1).schema_id == 1


def test_messages_with_numbers_out_of_the_air_cost_few_look_ups() -> None:
    """K8, I15: the ids of many messages are looked up first, and found."""
    known = 70_000
    serve, asked = answers(lambda path: (
        (200, {"schema": json.dumps(V1)}) if path.endswith(f"/{known}")
        else (404, {"error_code": 40403, "message": "none"})))
    with serving(serve) as url:
        client = RegistryClient(Registry(url))
        form = AvroFormat(Avro(json.dumps(V1), framed=True), client)
        noise = [framed(each) for each in range(3000)]
        data = pa.array([*noise, framed(known), framed(known)], pa.binary())
        decoded = form.decode(data)
        errors = decoded.errors.to_pylist()
        assert decoded.columns[0].to_pylist() == [None] * 3000 + [5, 5]
        assert errors[3000:] == [None, None]
        assert all("is not in the registry" in each or "was not looked up" in each
                   for each in errors[:3000])
        assert len(asked) <= MISSES_MAX + 1
        for _ in range(3):
            form.decode(pa.array([framed(0)] * 50 + [framed(known)], pa.binary()))
        assert len(asked) <= MISSES_MAX + 2


@pytest.mark.parametrize("content", [
    {"schema": "x" * (5 << 20)}, {"nothing": 1}, {"schema": 5}, {"schema": "{" * 100_000},
    {"schema": "[" * 50_000 + "]" * 50_000},
    {"schema": json.dumps(V1), "references": [{"name": 1}]},
    {"schema": json.dumps(V1), "references": [
        {"name": f"n{each}", "subject": "s", "version": 1} for each in range(100_000)]},
])
def test_a_schema_that_cannot_be_used_is_an_error_of_its_messages(content: Any) -> None:
    """K8, I15: whoever may register schemas cannot stop a source; and it is asked for once."""
    serve, asked = answers(lambda path: (
        (200, {"schema": json.dumps(V1)}) if path.endswith("/1") else (200, content)))
    with serving(serve) as url:
        form = AvroFormat(Avro(json.dumps(V1), framed=True), RegistryClient(Registry(url)))
        for _ in range(3):
            columns, errors, _ = form.decode(pa.array(
                [framed(1), framed(2), framed(2), framed(1)], pa.binary()))
            assert columns[0].to_pylist() == [5, None, None, 5]
            assert [each is None for each in errors.to_pylist()] == [True, False, False, True]
        assert len(asked) == 2


def test_references_that_never_end_are_an_error_of_the_schema() -> None:
    """K8: each one refers to the next."""
    def answer(path: str) -> tuple[int, Any]:
        number = int("".join(filter(str.isdigit, path.partition("s-")[2].partition("/")[0])) or 0)
        return 200, {"schema": '"string"', "id": 1, "version": 1, "references": [
            {"name": f"n{number}", "subject": f"s-{number + 1}", "version": 1}]}

    serve, asked = answers(answer)
    with serving(serve) as url:
        client = RegistryClient(Registry(url))
        with pytest.raises(SchemaUnusable, match="refers to more than"):
            client.texts_of(client.by_id(1).references)
        assert len(asked) <= REFERENCES_MAX + 2


def test_references_that_come_slowly_have_one_time_in_all() -> None:
    """K8: each of them in time, and all of them much too late; those that came are kept."""
    last = 20

    def answer(path: str) -> tuple[int, Any]:
        time.sleep(0.2)
        number = int(path.split("/")[2].removeprefix("s"))
        later = [{"name": f"n{number + 1}", "subject": f"s{number + 1}", "version": 1}]
        return 200, {"id": number, "version": 1, "schema": '"int"',
                     "references": later if number < last else []}

    serve, asked = answers(answer)
    with serving(serve) as url:
        now = [0.0]
        client = RegistryClient(Registry(url, {"timeout.ms": "1000"}),
                                clock=lambda: now[0] + time.monotonic())
        first = [SchemaReference("n1", "s1", 1)]
        begun = time.monotonic()
        with pytest.raises(RegistryUnavailable):
            client.texts_of(first)
        assert 0.9 < time.monotonic() - begun < 3.0  # not 20 * 0.2
        for _ in range(20):  # each try gets further
            now[0] += SILENCE_KEPT
            with contextlib.suppress(RegistryUnavailable):
                assert len(client.texts_of(first)) == last
                break
        else:
            pytest.fail("it never got them all")
        assert len(asked) < 2 * last


def test_versions_that_are_not_there_are_kept_in_mind_too() -> None:
    """K8: a reference to nothing is asked for once in a while."""
    now = [0.0]
    serve, asked = answers(lambda _: (404, {"error_code": 40402, "message": "none"}))
    with serving(serve) as url:
        client = RegistryClient(Registry(url), clock=lambda: now[0])
        for _ in range(5):
            with pytest.raises(SchemaNotFound, match="none"):
                client.version("s", 3)
        assert len(asked) == 1
        now[0] += MISSING_KEPT + 1
        with pytest.raises(SchemaNotFound):
            client.version("s", 3)
        assert len(asked) == 2


# -- the server

class Bystander:
    """Asks for a schema all the time, and keeps how long each answer took."""

    def __init__(self, server: RegistryServer) -> None:
        client_of(server).register("bystander", json.dumps(V1))
        self._server = server
        self._stop = threading.Event()
        self.seconds: list[float] = []
        self.failures: list[object] = []
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stop.wait(0.01):
            begun = time.monotonic()
            try:
                status, _ = ask(self._server, "GET", "/subjects/bystander/versions/1")
                if status != 200:
                    self.failures.append(status)
            except OSError as error:
                self.failures.append(error)
            self.seconds.append(time.monotonic() - begun)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        deadline = time.monotonic() + 30
        while len(self.seconds) < 5 and not self.failures and time.monotonic() < deadline:
            time.sleep(0.01)  # a bomb may be refused sooner than a busy machine asks five times
        self._stop.set()
        self._thread.join()
        assert self.failures == []
        assert len(self.seconds) >= 5
        assert statistics.median(self.seconds) < slowdown()
        assert max(self.seconds) < 10 * slowdown()


def test_idle_and_slow_connections_keep_nobody_out() -> None:
    """K8: three times as many as there is room for, silent, or sending a byte now and then."""
    threads = threading.active_count()
    with RegistryServer() as server, contextlib.ExitStack() as stack:
        address = urlsplit(server.url)
        with Bystander(server) as bystander:
            peers = [stack.enter_context(socket.create_connection(
                (address.hostname, address.port), timeout=10))
                for _ in range(3 * http_server.CONNECTIONS_MAX)]
            for _ in range(5):
                for peer in peers:
                    with contextlib.suppress(OSError):
                        peer.sendall(b"G")
                time.sleep(0.05)
            wanted = len(bystander.seconds) + 20
            while len(bystander.seconds) < wanted:
                time.sleep(0.01)
        assert threading.active_count() - threads < 2 * http_server.CONNECTIONS_MAX
        closed = 0
        for peer in peers:
            peer.settimeout(0.01)
            with contextlib.suppress(TimeoutError):
                closed += not _ends(peer)
        assert closed >= 2 * http_server.CONNECTIONS_MAX - 10


def _ends(peer: socket.socket) -> bytes:
    try:
        return peer.recv(10)
    except ConnectionResetError:
        return b""


def test_a_request_has_a_time_to_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """K8: who sends a byte now and then is hung up on; who asks again and again is not."""
    defaults = http_server.BoundedHttpServer.__init__.__kwdefaults__ or {}
    monkeypatch.setitem(defaults, "request_seconds", 0.6)
    with RegistryServer() as server:
        address = urlsplit(server.url)
        busy = http.client.HTTPConnection(address.netloc, timeout=10)

        def is_served() -> bool:
            busy.request("GET", "/subjects")
            answer = busy.getresponse()
            answer.read()
            return answer.status == 200

        begun = time.monotonic()
        with (contextlib.closing(busy),
              socket.create_connection((address.hostname, address.port), timeout=10) as slow):
            assert is_served()
            kept, ended = busy.sock, False
            slow.settimeout(0.05)
            while not ended and time.monotonic() - begun < 20:
                assert is_served()
                try:
                    slow.sendall(b"G")
                    ended = slow.recv(10) == b""
                except TimeoutError:
                    continue
                except OSError:
                    ended = True
            assert ended
            assert is_served()
            assert busy.sock is kept


def deep(depth: int) -> str:
    return "[" * depth + "]" * depth


def ladder(names: int) -> str:
    """Records that hold the one before twice: 2 ** names, if each is looked at anew."""
    inner: Any = "int"
    records: list[Any] = []
    for level in range(names):
        records.append({"type": "record", "name": f"r{level}", "fields": [
            {"name": "a", "type": inner}, {"name": "b", "type": inner}]})
        inner = f"r{level}"
    return json.dumps(["null", *records])


def union(branches: int) -> str:
    return json.dumps(["null", *({"type": "record", "name": f"r{each}", "fields": []}
                                 for each in range(branches))])


def wide(fields: int) -> str:
    return json.dumps({"type": "record", "name": "w", "fields": [
        {"name": f"f{each}", "type": "int"} for each in range(fields)]})


@pytest.mark.parametrize(("kind", "texts"), [
    ("JSON", [deep(50_000)]), ("AVRO", [deep(50_000)]), ("JSON", [deep(DEPTH_MAX - 1)] * 2),
    ("JSON", ['"' + '\\"' * 400_000]), ("JSON", ["[" * 400_000]), ("AVRO", ['"' * 500_000]),
    ("PROTOBUF", ["{" * 400_000] * 2), ("AVRO", [ladder(30), ladder(31)]),
    ("AVRO", [ladder(1500), ladder(1501)]), ("AVRO", [union(8000), union(8001)]),
    ("AVRO", [wide(20_000), wide(20_001)]), ("AVRO", ["x" * (1 << 20)]),
])
def test_schemas_that_are_bombs_are_refused_or_kept_and_stall_nobody(
    kind: str, texts: list[str]
) -> None:
    """K8: deep, wide, or large; the server answers in JSON, and others are served meanwhile."""
    with RegistryServer() as server:
        with Bystander(server):
            for text in texts:
                body = {"schema": text, "schemaType": kind}
                for path in ("/subjects/s/versions", "/subjects/s",
                             "/compatibility/subjects/s/versions"):
                    status, answer = ask(server, "POST", path, body)
                    assert status in (200, 404, 409, 422), (status, str(answer)[:300])
            for path in ("/subjects/s/versions/1/schema", "/schemas/ids/2/schema"):
                assert ask(server, "GET", path)[0] in (200, 404)
            time.sleep(0.2)
        assert ask(server, "GET", "/subjects")[0] == 200


def test_reference_bombs_are_followed_once() -> None:
    """K8: each schema refers to the one before twice, under two names: 2 ** 60 ways."""
    with RegistryServer() as server, Bystander(server):
        begun = time.monotonic()
        for level in range(60):
            references = [{"name": name, "subject": f"s{level - 1}", "version": 1}
                          for name in ("a", "b")] if level else []
            status, answer = ask(server, "POST", f"/subjects/s{level}/versions", {
                "schema": json.dumps({"type": "record", "name": f"r{level}", "fields": []}),
                "references": references})
            assert status == 200, answer
        assert time.monotonic() - begun < 30
        many = [{"name": f"n{each}", "subject": "s0", "version": 1} for each in range(5000)]
        assert ask(server, "POST", "/subjects/x/versions", {
            "schema": '"int"', "references": many})[0] == 422


def test_a_chain_of_references_has_an_end() -> None:
    """K8: as many as may be, and not one more."""
    store = Store()
    store.register("s0", StoredSchema('"int"', "PROTOBUF"))
    for level in range(1, REFERENCES_MAX + 1):
        before = StoredReference("x", f"s{level - 1}", 1)
        store.register(f"s{level}", StoredSchema('"int"', "PROTOBUF", (before,)))
    with pytest.raises(Denied, match="references"):
        store.register("y", StoredSchema('"int"', "PROTOBUF", (
            StoredReference("x", f"s{REFERENCES_MAX}", 1),)))


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """K8: versions, subjects, levels, and all texts together."""
    monkeypatch.setattr(limits, "VERSIONS_MAX", 5)
    monkeypatch.setattr(limits, "SUBJECTS_MAX", 3)
    monkeypatch.setattr(limits, "TEXTS_SIZE_MAX", 100)
    store = Store()
    for _ in range(5):
        store.register("s", StoredSchema('"int"'))
        store.delete("s")
    with pytest.raises(Denied, match="versions"):
        store.register("s", StoredSchema('"int"'))
    for subject in ("t", "u"):
        store.register(subject, StoredSchema('"int"'))
    with pytest.raises(Denied, match="no room for more"):
        store.register("v", StoredSchema('"int"'))
    with pytest.raises(Denied, match="characters in all"):
        store.register("t", StoredSchema(json.dumps({"type": "int", "doc": "x" * 100})))
    with pytest.raises(Denied, match="at most"):
        store.register("n" * 5000, StoredSchema('"int"'))
    for subject in ("t", "u", "w"):
        store.set_level(subject, "NONE")
    with pytest.raises(Denied, match="no room for more"):
        store.set_level("x", "NONE")


@pytest.mark.parametrize("head", [
    b"Content-Length: 99999999999", b"Content-Length: -1", b"Content-Length: x",
    b"Content-Length: %d" % (BODY_SIZE_MAX + 1), b"Transfer-Encoding: chunked"])
def test_bodies_without_a_proper_length_are_refused(head: bytes) -> None:
    """K8: and what follows is not taken for the next request."""
    with RegistryServer() as server:
        address = urlsplit(server.url)
        with socket.create_connection((address.hostname, address.port), timeout=10) as peer:
            peer.sendall(b"POST /subjects/s/versions HTTP/1.1\r\nHost: x\r\n" + head +
                         b"\r\n\r\nDELETE /subjects/s HTTP/1.1\r\nHost: x\r\n\r\n")
            data = b""
            while chunk := peer.recv(65536):
                data += chunk
        assert data.count(b"HTTP/1.1 4") == 1


def test_a_password_that_is_wrong_does_not_show() -> None:
    """K8: errors name the registry without user and password."""
    with RegistryServer(credentials=("me", "secret")) as server:
        url = server.url.replace("http://", "http://me:hunter2@")
        with pytest.raises(RegistryRefused) as raised:
            RegistryClient(Registry(url)).by_id(1)
        assert "hunter2" not in str(raised.value)
    with pytest.raises(RegistryUnavailable) as away:
        RegistryClient(Registry(url), sleep=lambda _: None).by_id(1)
    assert "hunter2" not in str(away.value)


def test_depth_is_told_without_reading() -> None:
    """K8: brackets in strings do not count."""
    assert not is_deep(json.dumps({"doc": "[" * 1000, "x\\": ["]" * 10]}))
    assert is_deep("[" * (DEPTH_MAX + 1))
    assert not is_deep('"' + "[" * 1000)
