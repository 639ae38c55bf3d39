"""A temporary cluster with diskless topics: nodes in racks, a directory of objects, PostgreSQL."""

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from quipu.bench.diskless.nodes import NODE_SETTINGS, Counted, counted_at
from quipu.bench.diskless.postgres_server import temporary_postgres
from quipu.bench.errors import BenchError
from quipu.launch.group import NodeGroup
from quipu.launch.ports import HOST, free_ports
from quipu.launch.postgres import EXTRA
from quipu.launch.process import start_command
from quipu.model.settings_types import Address

STOP_MS: Final = "2000"  # all nodes stop together


class DisklessCluster(NamedTuple):
    """A cluster that runs; one node in each rack."""

    addresses: list[Address]
    metrics_ports: list[int]
    control_plane_url: str

    def counted(self) -> Counted:
        """What all nodes have counted since their start."""
        return Counted(*map(sum, zip(*map(counted_at, self.metrics_ports), strict=True)))


@contextlib.contextmanager
def diskless_cluster(racks: int, settings: Mapping[str, str]) -> Iterator[DisklessCluster]:
    """A cluster of one node in each of `racks` racks, with these settings; removed at the end."""
    ports = free_ports(2 * racks)
    peer_ports, metrics_ports = ports[:racks], ports[racks:]
    voters = ",".join(f"{number + 1}@{HOST}:{port}" for number, port in
                      enumerate(peer_ports[: racks if racks % 2 else racks - 1]))
    with (
        temporary_postgres() as url,
        tempfile.TemporaryDirectory(prefix="quipu-bench-diskless-") as folder,
        NodeGroup() as nodes,
    ):
        if url is None:
            raise BenchError(f"a cluster needs PostgreSQL: pip install 'quipu[{EXTRA}]'")
        for number in range(racks):
            command = start_command(
                "--listen", f"{HOST}:0", "--dir", f"{folder}/{number}", settings={
                    **NODE_SETTINGS, "node.name": f"bench-{number}",
                    "broker.rack": f"r{number + 1}",
                    "peer.listener": f"{HOST}:{peer_ports[number]}",
                    "controller.quorum.voters": voters,
                    "metrics.listener": f"{HOST}:{metrics_ports[number]}",
                    "diskless.storage.url": (Path(folder) / "objects").absolute().as_uri(),
                    "diskless.control.plane.url": url,
                    "controlled.shutdown.timeout.ms": STOP_MS, **settings})
            nodes.start(f"bench-{number}", command, Path(folder) / f"{number}.stderr")
        yield DisklessCluster(nodes.await_ready(), metrics_ports, url)
