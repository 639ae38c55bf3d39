"""Whom to measure: a broker at an address, or a node of our own for as long as it takes."""

import contextlib
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from quipu.cli.bench.control import Address, BenchError, parse_address
from quipu.cli.bench.processes import listening_pid

START_SECONDS_MAX: Final = 30.0
STOP_SECONDS_MAX: Final = 30.0
LOG_NAME: Final = "node.stderr"
LOG_TAIL_SIZE: Final = 2_000

_READY: Final = re.compile(r"quipu ready (?P<host>\S+):(?P<port>\d+)\s*")


class Target(NamedTuple):
    """A broker under load."""

    address: Address
    pid: int | None  # None for a broker whose process cannot be seen from here
    directory: str | None  # where it keeps its data, if that is known
    is_temporary: bool
    other_pids: tuple[int, ...] = ()  # of the chain's other nodes


@contextlib.contextmanager
def target(
    bootstrap: str | None, pid: int | None, settings: Mapping[str, str] | None = None
) -> Iterator[Target]:
    """The broker at `bootstrap`, or without one a temporary node that is removed at the end."""
    if bootstrap is None:
        with temporary_node(settings or {}) as found:
            yield found
        return
    address = parse_address(bootstrap)
    if pid is None and _is_local(address.host):
        pid = listening_pid(address.port)
    yield Target(address, pid, None, is_temporary=False)


@contextlib.contextmanager
def temporary_node(settings: Mapping[str, str]) -> Iterator[Target]:
    """A node on a free port, with a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="quipu-bench-node-") as directory:
        node = _launch(directory, settings)
        try:
            yield Target(_ready(node, directory), node.pid, directory, is_temporary=True)
        finally:
            _stop(node)


@contextlib.contextmanager
def temporary_chain(count: int) -> Iterator[Target]:
    """A chain of `count` nodes, each a process of its own; the target is its head."""
    ports = _free_ports(count)
    voters = ",".join(f"{number + 1}@127.0.0.1:{port}" for number, port in enumerate(ports))
    nodes: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(prefix="quipu-bench-chain-") as parent:
        try:
            for number, port in enumerate(ports):
                directory = f"{parent}/{number}"
                Path(directory).mkdir()
                nodes.append(_launch(directory, {
                    "node.name": f"bench-{number}", "peer.listener": f"127.0.0.1:{port}",
                    "controller.quorum.voters": voters}))
            head, *_ = [_ready(node, f"{parent}/{number}") for number, node in enumerate(nodes)]
            names = [f"bench-{number}" for number in range(count)]
            subprocess.run(  # noqa: S603 ours
                [sys.executable, "-m", "quipu", "chain", "create", "bench", *names, "--wait", "30",
                 "--bootstrap", str(head)], check=True, stdout=subprocess.DEVNULL)
            yield Target(head, nodes[0].pid, parent, is_temporary=True,
                         other_pids=tuple(node.pid for node in nodes[1:]))
        finally:
            for node in nodes:
                _stop(node)


def _launch(directory: str, settings: Mapping[str, str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "quipu", "start", "--listen", "127.0.0.1:0",
               "--dir", f"{directory}/data", "--set", "metrics.listener=127.0.0.1:0"]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    with (Path(directory) / LOG_NAME).open("wb") as log:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)  # noqa: S603 ours


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now: nodes of a chain must know each other's beforehand."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _ready(node: subprocess.Popen[bytes], directory: str) -> Address:
    """Wait for the line that says where the node listens."""
    assert node.stdout is not None
    deadline = time.monotonic() + START_SECONDS_MAX
    line = b""
    with selectors.DefaultSelector() as selector:
        selector.register(node.stdout, selectors.EVENT_READ)
        while not line.endswith(b"\n"):
            part = b""
            if selector.select(max(0.0, deadline - time.monotonic())):
                part = os.read(node.stdout.fileno(), 4096)
            if not part:
                log_path = Path(directory) / LOG_NAME
                told = log_path.read_text(errors="replace")[-LOG_TAIL_SIZE:]
                raise BenchError(f"the temporary node did not start; it logged:\n{told}")
            line += part
    found = _READY.fullmatch(line.decode(errors="replace"))
    if found is None:
        raise BenchError(f"the temporary node said {line!r} instead of where it listens")
    return Address(found["host"], int(found["port"]))


def _stop(node: subprocess.Popen[bytes]) -> None:
    if node.poll() is None:
        node.send_signal(signal.SIGTERM)
    try:
        node.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        node.kill()
        node.wait()
    if node.stdout is not None:
        node.stdout.close()


def _is_local(host: str) -> bool:
    try:
        found = {info[4][0] for info in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return all(str(address).startswith("127.") or address == "::1" for address in found)
