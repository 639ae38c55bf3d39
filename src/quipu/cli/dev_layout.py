"""The layout of a cluster of `quipu dev`: names, ports and settings of its nodes.

    DIR/dev.json          the layout, written once; a later start continues with it
    DIR/a-0.properties    settings of one node, written again at every start
    DIR/a-0/              the node's data
    DIR/a-0.log           the node's log output
    DIR/remote/           the remote tier of all nodes, if `remote.log.storage.system.enable` is
                          set and no other place with `remote.log.storage.url`
    DIR/diskless/         the objects of diskless topics of all nodes, if `--diskless` is given and
                          no other place with `diskless.storage.url`
    DIR/postgres/         their control plane, if no other is given with
                          `diskless.control.plane.url`

Ports of a cluster with base port P: Kafka clients P, P+1, ...; other nodes P+100, P+101, ...;
metrics and health P+200, P+201, ....  With P = 0 free ports are chosen once, and used again.
"""

import json
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from quipu.cli.errors import CommandFailed
from quipu.launch.ports import HOST, free_ports, listening_pid
from quipu.launch.postgres import postgres_url

FILE_NAME: Final = "dev.json"
TIER_NAME: Final = "remote"
STORAGE_ENABLE: Final = "remote.log.storage.system.enable"
STORAGE_URL: Final = "remote.log.storage.url"
DISKLESS_NAME: Final = "diskless"
DISKLESS_ENABLE: Final = "diskless.storage.system.enable"
DISKLESS_URL: Final = "diskless.storage.url"
CONTROL_PLANE_NAME: Final = "postgres"
CONTROL_PLANE_URL: Final = "diskless.control.plane.url"
FILE_SIZE_MAX: Final = 1 << 20
NODES_MAX: Final = 100  # so that the ranges of ports stay apart
CHAINS_MAX: Final = 26
VOTERS_MAX: Final = 3
PEER_PORT_STEP: Final = 100
METRICS_PORT_STEP: Final = 200
NODE_ID_STEP: Final = 1000  # between the first nodes of two chains
PORT_MAX: Final = 65_535
DEFAULT_PORT: Final = 9092
STOP_MS: Final = "2000"  # all nodes stop together: the last one has no node to hand over to
_CHAIN_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,40}[a-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """The name, id, rack and ports of one node."""

    name: str
    node_id: int
    rack: str | None
    port: int
    peer_port: int
    metrics_port: int

    @property
    def chain(self) -> str:
        """The chain that it belongs to."""
        return self.name.rpartition("-")[0]

    @property
    def address(self) -> str:
        """Where Kafka clients reach it."""
        return f"{HOST}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DevLayout:
    """All nodes of a cluster, in the order of chains and numbers."""

    nodes: tuple[NodePlan, ...]
    secret: str = field(repr=False)
    settings: Mapping[str, str] = field(repr=False)  # a secret may be among them

    @property
    def chains(self) -> dict[str, list[str]]:
        """Names of nodes by chain."""
        found: dict[str, list[str]] = {}
        for node in self.nodes:
            found.setdefault(node.chain, []).append(node.name)
        return found

    @property
    def bootstrap(self) -> str:
        """The addresses of all nodes, for bootstrap.servers."""
        return ",".join(node.address for node in self.nodes)

    @property
    def voters(self) -> list[NodePlan]:
        """The nodes that elect the controller: an odd number, of as many chains as can be."""
        spread = sorted(self.nodes, key=lambda node: int(node.name.rpartition("-")[2]))
        count = min(VOTERS_MAX, len(spread))
        return spread[: count - 1 if count % 2 == 0 else count]

    @property
    def is_diskless(self) -> bool:
        """Whether the nodes may have diskless topics."""
        return self.settings.get(DISKLESS_ENABLE) == "true"

    @property
    def needs_postgres(self) -> bool:
        """Whether `quipu dev` runs the control plane of diskless topics itself."""
        return self.is_diskless and CONTROL_PLANE_URL not in self.settings

    def properties(self, node: NodePlan, directory: Path) -> str:
        """The settings of one node, as a file for `quipu start --config`."""
        own = {
            "node.name": node.name,
            "node.id": str(node.node_id),
            "log.dirs": str((directory / node.name).absolute()),
            "listeners": node.address,
            "metrics.listener": f"{HOST}:{node.metrics_port}",
            "peer.listener": f"{HOST}:{node.peer_port}",
            "peer.secret": self.secret,
            "controller.quorum.voters": ",".join(
                f"{voter.node_id}@{HOST}:{voter.peer_port}" for voter in self.voters),
            "controlled.shutdown.timeout.ms": STOP_MS,
            **({"broker.rack": node.rack} if node.rack else {}),
            **({STORAGE_URL: (directory / TIER_NAME).absolute().as_uri()}
               if self.settings.get(STORAGE_ENABLE) == "true" else {}),
            **({DISKLESS_URL: (directory / DISKLESS_NAME).absolute().as_uri(),
                CONTROL_PLANE_URL: postgres_url(directory / CONTROL_PLANE_NAME)}
               if self.is_diskless else {}),
            **self.settings,
        }
        lines = [f"{key}={_escaped(value)}" for key, value in own.items()]
        return "\n".join(["# Made by `quipu dev` at every start.", *lines, ""])


@dataclass(frozen=True, slots=True, kw_only=True)
class DevOptions:
    """The options of the command line; None for an option that is not given."""

    node_count: int | None
    chain: str | None
    chain_count: int | None
    racks: tuple[str, ...]
    base_port: int | None
    settings: Mapping[str, str]


def plan(options: DevOptions, secret: str) -> DevLayout:
    """The layout of a new cluster."""
    names = _chain_names(options.chain or "a", options.chain_count or 1)
    count = options.node_count or 3
    if count * len(names) > NODES_MAX:
        raise CommandFailed(f"{count * len(names)} nodes are too many for one machine; "
                            f"take {NODES_MAX} at most")
    base = DEFAULT_PORT if options.base_port is None else options.base_port
    ports = _ports(base, count * len(names))
    nodes = [
        NodePlan(
            name=f"{name}-{number}", node_id=1 + NODE_ID_STEP * place + number,
            rack=options.racks[number % len(options.racks)] if options.racks else None,
            port=port, peer_port=peer_port, metrics_port=metrics_port)
        for (place, name, number), (port, peer_port, metrics_port) in zip(
            [(place, name, number) for place, name in enumerate(names) for number in range(count)],
            ports, strict=True)
    ]
    return DevLayout(nodes=tuple(nodes), secret=secret, settings=dict(options.settings))


def continued(layout: DevLayout, options: DevOptions, directory: Path) -> DevLayout:
    """The layout of a cluster that exists; options must not contradict it."""
    chains = layout.chains
    found_text = (f"{directory} holds a cluster of {len(layout.nodes)} nodes in chains "
                  f"{', '.join(chains)}, from port {layout.nodes[0].port} on")
    given: list[tuple[str, object, object]] = [
        ("--nodes", options.node_count, len(layout.nodes) // len(chains)),
        ("--chain", options.chain, next(iter(chains))),
        ("--chains", options.chain_count, len(chains)),
        ("--base-port", options.base_port or None, layout.nodes[0].port),
        ("--racks", options.racks or None, _racks(layout, len(options.racks))),
    ]
    for option, wanted, found in given:
        if wanted is not None and wanted != found:
            raise CommandFailed(f"{found_text}; leave out {option}, or choose another --dir")
    return DevLayout(nodes=layout.nodes, secret=layout.secret,
                  settings={**layout.settings, **options.settings})


def load(directory: Path) -> DevLayout | None:
    """The layout of the cluster in `directory`, if there is one."""
    path = directory / FILE_NAME
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(FILE_SIZE_MAX))
        nodes = tuple(NodePlan(**node) for node in found["nodes"])
        layout = DevLayout(nodes=nodes, secret=found["secret"], settings=found["settings"])
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise CommandFailed(f"{path} was not written by quipu dev; choose another --dir") from None
    if not nodes:
        raise CommandFailed(f"{path} names no nodes; choose another --dir")
    return layout


def save(layout: DevLayout, directory: Path) -> None:
    """Write the layout and every node's settings, readable by this user only: they hold secrets."""
    whole = {"nodes": [asdict(node) for node in layout.nodes], "secret": layout.secret,
             "settings": dict(layout.settings)}
    _write(directory / FILE_NAME, json.dumps(whole, indent=1) + "\n")
    for node in layout.nodes:
        _write(directory / f"{node.name}.properties", layout.properties(node, directory))


def check_ports(layout: DevLayout) -> None:
    """Raise `CommandFailed` if a port of the layout is in use."""
    for node in layout.nodes:
        for port in (node.port, node.peer_port, node.metrics_port):
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((HOST, port))
                except OSError as error:
                    pid = listening_pid(port)
                    user = f"process {pid}, which uses it" if pid else "the process that uses it"
                    raise CommandFailed(
                        f"port {port} for {node.name}: {error.strerror}; stop {user}, or "
                        "begin in another --dir with another --base-port (0: any that are free)"
                    ) from None


def _write(path: Path, text: str) -> None:
    try:
        path.touch(mode=0o600)
        path.write_text(text)
    except OSError as error:
        raise CommandFailed(f"cannot write {path}: {error.strerror}") from None


def _chain_names(first: str, count: int) -> list[str]:
    """The names `a`, `b`, `c`; with another first name `x`: `x`, `x2`, `x3`."""
    if not _CHAIN_NAME.fullmatch(first):
        raise CommandFailed(
            f"--chain {first}: write lower-case letters, digits and dashes, such as orders")
    if first == "a":
        return [chr(ord("a") + place) for place in range(count)]
    return [first, *(f"{first}{number}" for number in range(2, count + 1))]


def _ports(base: int, count: int) -> list[tuple[int, int, int]]:
    if base == 0:
        free = free_ports(3 * count)
        return [(free[3 * place], free[3 * place + 1], free[3 * place + 2])
                for place in range(count)]
    if base + METRICS_PORT_STEP + count - 1 > PORT_MAX:
        raise CommandFailed(f"--base-port {base}: the last port would be above {PORT_MAX}")
    return [(base + place, base + PEER_PORT_STEP + place, base + METRICS_PORT_STEP + place)
            for place in range(count)]


def _racks(layout: DevLayout, count: int) -> tuple[str | None, ...]:
    """The racks of the first chain's first nodes."""
    racks: Sequence[str | None] = [node.rack for node in layout.nodes]
    return tuple(racks[:count])


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\")
