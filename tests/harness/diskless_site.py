"""All that diskless topics need, as real processes: nodes, PostgreSQL, and an S3 server behind a
wire that can fail.

    with DisklessSite(tmp_path, s3_server) as site:
        site.create_topic("t", partitions=2)
        Producer({"bootstrap.servers": site.pinned("a-1")})     speaks with a-1 alone
        site.proxy.break_next(WireFault.LOSE_RESPONSE, b"PUT")
        site.postgres.crash()

Stock clients go to the leader that metadata names.  So that several of them write to one partition
through different nodes, each node has one more listener for each node, and what all nodes advertise
of that one is the address of the node itself: a client that begins there stays there.
"""

import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.harness.cluster import RunningCluster
from tests.harness.command import run_quipu
from tests.harness.ports import hold_port
from tests.harness.postgres import PostgresServer
from tests.harness.s3_server import S3Server
from tests.harness.store_proxy import StoreProxy

FLUSH_MS = 50
STORE_SECONDS = 3.0  # of one call of the store


class DisklessSite:
    """Three nodes and what they need, while it is entered."""

    def __init__(
        self, directory: Path, server: S3Server, settings: Mapping[str, str] | None = None, *,
        nodes: int = 3, is_tiered: bool = False,
    ) -> None:
        """With `is_tiered` the nodes have a remote tier in a bucket of the same server."""
        self._stack = ExitStack()
        self._directory = directory
        self._nodes = nodes
        self._settings = settings or {}
        self._server = server
        self._bucket = server.bucket()
        self._tier = server.bucket() if is_tiered else None
        self._pinned: dict[str, str] = {}

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.proxy = stack.enter_context(StoreProxy(self._server.port))
            self.postgres = PostgresServer()
            stack.callback(self.postgres.stop)
            self.cluster = RunningCluster(self._directory, nodes=self._nodes, settings={
                "diskless.storage.system.enable": "true",
                "diskless.storage.url": self._url(self.proxy.port),
                "diskless.control.plane.url": self.postgres.url,
                "diskless.flush.interval.ms": str(FLUSH_MS), **self._tier_settings(),
                **self._settings})
            self._pin()
            stack.enter_context(self.cluster)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    @property
    def store_url(self) -> str:
        """The URL of the store, past the wire that fails."""
        return self._url(self._server.port)

    def pinned(self, name: str) -> str:
        """An address at which every node seems to be this one."""
        return self._pinned[name]

    def create_topic(self, topic: str, *, partitions: int = 1, **configs: str) -> None:
        """A diskless topic; settings have _ for dots."""
        self.cluster.create_topic(topic, partitions=partitions, diskless_enable="true", **configs)

    def diskless(self, command: str, *words: str) -> tuple[int, str]:
        """Run `quipu diskless COMMAND` on the store and the control plane."""
        done = run_quipu("diskless", command, "--control-plane", self.postgres.url, "--storage",
                         self.store_url, *words)
        return done.code, done.out + done.err

    def objects(self) -> list[dict[str, Any]]:
        """What `quipu diskless objects` lists."""
        _, out = self.diskless("objects", "--json")
        return [json.loads(line) for line in out.splitlines()]

    def _tier_settings(self) -> dict[str, str]:
        if self._tier is None:
            return {}
        return {"remote.log.storage.system.enable": "true",
                "remote.log.storage.url": self._url(self.proxy.port, self._tier),
                "rlmm.config.metadata.storage.url": self.postgres.url,
                "remote.log.manager.task.interval.ms": "200"}

    def _url(self, port: int, bucket: str | None = None) -> str:
        url = self._server.url(bucket or self._bucket, port=port)
        return url.replace("timeout_ms=20000", f"timeout_ms={int(STORE_SECONDS * 1000)}")

    def _pin(self) -> None:
        """Give every node a listener for each node."""
        cluster = self.cluster
        listeners = {name: f"PIN{place}" for place, name in enumerate(cluster.nodes)}
        self._pinned = {name: f"127.0.0.1:{hold_port(node)}"
                        for name, node in cluster.nodes.items()}
        protocols = ",".join(f"{each}:PLAINTEXT" for each in ("PLAINTEXT", *listeners.values()))
        advertised = ",".join(f"{listeners[name]}://{address}"
                              for name, address in self._pinned.items())
        for name, node in cluster.nodes.items():
            own = node.command()[node.command().index("--listen") + 1]
            others = [f"{listener}://{self._pinned[of]}" if of == name
                      else f"{listener}://127.0.0.1:{hold_port(node)}"
                      for of, listener in listeners.items()]
            node.arguments += ["--listen", ",".join([f"PLAINTEXT://{own}", *others])]
            node.settings |= {"listener.security.protocol.map": protocols,
                              "advertised.listeners": advertised}
