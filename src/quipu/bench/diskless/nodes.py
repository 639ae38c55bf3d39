"""Temporary nodes with diskless topics, and what they have counted: puts, gets, commits."""

import contextlib
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, Self

from quipu.bench.errors import BenchError
from quipu.bench.target import Target, temporary_node
from quipu.launch.ports import HOST, free_ports

NODE_SETTINGS: Final = {"diskless.storage.system.enable": "true"}
TOPIC_SETTINGS: Final = {"diskless.enable": "true"}
_PREFIX: Final = "quipu_diskless_"


class Counted(NamedTuple):
    """Counters of a node's diskless topics."""

    batch_bytes: int = 0  # that were produced
    puts: int = 0
    put_bytes: int = 0
    commits: int = 0  # transactions of the control plane that order objects
    read_bytes: int = 0  # that consumers got
    gets: int = 0
    get_bytes: int = 0
    finds: int = 0  # transactions that look for records
    cache_hits: int = 0
    receipt_objects: int = 0  # of the puts: without batches, written after a silence

    @classmethod
    def of(cls, text: str) -> Self:
        """The counters in the text of a node's metrics."""
        values = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith(_PREFIX))
        try:
            return cls(*(int(float(values[f"{_PREFIX}{name}_total"])) for name in cls._fields))
        except KeyError as error:
            raise BenchError(f"the node's metrics have no {error}") from None

    def since(self, before: "Counted") -> "Counted":
        """What was counted after `before`."""
        return Counted(*(now - then for now, then in zip(self, before, strict=True)))


class DisklessNode(NamedTuple):
    """A temporary node."""

    target: Target
    metrics_port: int

    def counted(self) -> Counted:
        """What it has counted since its start."""
        return counted_at(self.metrics_port)


def counted_at(metrics_port: int) -> Counted:
    """What a node of this machine has counted since its start."""
    url = f"http://{HOST}:{metrics_port}/metrics"
    try:
        with urllib.request.urlopen(url, timeout=30.0) as found:
            return Counted.of(found.read().decode())
    except (urllib.error.URLError, OSError) as error:
        raise BenchError(f"{url}: {error}") from error


@contextlib.contextmanager
def diskless_node(settings: Mapping[str, str]) -> Iterator[DisklessNode]:
    """A temporary node with diskless topics and these settings."""
    (port,) = free_ports(1)
    with temporary_node({
            **NODE_SETTINGS, "metrics.listener": f"{HOST}:{port}", **settings}) as target:
        yield DisklessNode(target, port)
