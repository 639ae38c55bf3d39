"""The broker that is measured: one at an address, or a temporary node."""

import contextlib
import socket
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from quipu.bench.control import responding
from quipu.cli import chain
from quipu.launch.group import NodeGroup
from quipu.launch.ports import free_ports, listening_pid
from quipu.launch.process import NodeProcess, start_command
from quipu.model.settings_types import Address

CHAIN_SECONDS_MAX = 120.0


class Target(NamedTuple):
    """A broker under load."""

    address: Address
    pid: int | None  # None for a broker whose process is not visible on this machine
    directory: str | None  # its data directory, if that is known
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
    address = responding(bootstrap)
    if pid is None and _is_local(address.host):
        pid = listening_pid(address.port)
    yield Target(address, pid, None, is_temporary=False)


@contextlib.contextmanager
def temporary_node(settings: Mapping[str, str]) -> Iterator[Target]:
    """A node on a free port, with a directory of its own."""
    with (
        tempfile.TemporaryDirectory(prefix="quipu-bench-node-") as directory,
        NodeGroup() as nodes,
    ):
        node = _start(nodes, "temporary node", directory, settings)
        yield Target(node.await_ready(), node.pid, directory, is_temporary=True)


@contextlib.contextmanager
def temporary_chain(count: int) -> Iterator[Target]:
    """A chain of `count` nodes, each a process of its own; the target is its head."""
    ports = free_ports(count)
    voters = ",".join(f"{number + 1}@127.0.0.1:{port}" for number, port in enumerate(ports))
    names = [f"bench-{number}" for number in range(count)]
    with (
        tempfile.TemporaryDirectory(prefix="quipu-bench-chain-") as parent,
        NodeGroup() as nodes,
    ):
        for number, (name, port) in enumerate(zip(names, ports, strict=True)):
            directory = f"{parent}/{number}"
            Path(directory).mkdir()
            _start(nodes, name, directory, {
                "node.name": name, "peer.listener": f"127.0.0.1:{port}",
                "controller.quorum.voters": voters})
        head, *_ = nodes.await_ready()
        chain.make(str(head), "bench", names, or_extend=False, wait_seconds=CHAIN_SECONDS_MAX)
        first, *others = nodes
        yield Target(head, first.pid, parent, is_temporary=True,
                     other_pids=tuple(node.pid for node in others))


def _start(
    nodes: NodeGroup, name: str, directory: str, settings: Mapping[str, str]
) -> NodeProcess:
    command = start_command(
        "--listen", "127.0.0.1:0", "--dir", f"{directory}/data",
        settings={"metrics.listener": "127.0.0.1:0", **settings})
    return nodes.start(name, command, Path(directory) / "node.stderr")


def _is_local(host: str) -> bool:
    try:
        found = {info[4][0] for info in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return all(str(address).startswith("127.") or address == "::1" for address in found)
