"""A real cluster: every node a process of its own, on loopback, with its own directory.

    with RunningCluster(tmp_path, nodes=3) as cluster:
        cluster.create_topic("t", partitions=2)
        cluster["a-1"].kill()
        ...
        cluster.await_serving("a")

The first three nodes (or all, if there are fewer) elect the controller.  Peer ports are reserved
before any node starts, because every node must know them.
"""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from quipu.launch.process import NodeFailed
from quipu.storage.directory.directory_names import is_log
from quipu.wire.messages.k55_describe_quorum import (
    DescribeQuorumRequest,
    PartitionData,
    TopicData,
)
from tests.harness.command import run_quipu
from tests.harness.hosts import Hosts
from tests.harness.node import RunningNode, environment
from tests.harness.ports import hold_port
from tests.harness.proxy import PeerProxy
from tests.harness.raw import RawConnection

VOTERS_MAX = 3
SECRET = "known to every node of a test's cluster"
WAIT_SECONDS_MAX = 60.0
QUICK = {  # so that tests need not wait for what people would
    "broker.heartbeat.interval.ms": "100",
    "broker.session.timeout.ms": "1500",
    "controller.quorum.election.timeout.ms": "400",
    "controller.quorum.heartbeat.interval.ms": "80",
    "chain.heartbeat.interval.ms": "100",
    "chain.cold.start.wait.ms": "3000",
}


class RunningCluster:
    """Nodes by name: `a-0`, `a-1`, ... of one chain or several."""

    def __init__(
        self,
        directory: Path,
        *,
        nodes: int = 3,
        chains: Sequence[str] = ("a",),
        settings: Mapping[str, str] | None = None,
        racks: Sequence[str] = (),
        proxied: bool = False,
        patient: bool = False,
        hosts: Hosts | None = None,
    ) -> None:
        """`patient`: use the default timeouts.  `hosts`: one per node."""
        self.directory = directory
        self.chains = {name: [f"{name}-{number}" for number in range(nodes)] for name in chains}
        self._settings = {**({} if patient else QUICK), **(settings or {})}
        self._bases = {name: 1 + 1000 * place for place, name in enumerate(chains)}
        names = [node for members in self.chains.values() for node in members]
        self._peer_ports = {name: hold_port(self) for name in names}
        self.nodes: dict[str, RunningNode] = {}
        self._hosts = hosts
        self._places = {name: place for place, name in enumerate(names)}
        self.proxy = PeerProxy({self.node_id(name): port for name, port
                                in self._peer_ports.items()}) if proxied else None
        if self.proxy is not None:
            self.proxy.__enter__()
        self._voters = ",".join(
            f"{self.node_id(name)}@{self.host(name)}:{self._told_port(name)}"
            for name in names[:VOTERS_MAX])
        for place, name in enumerate(names):
            self._add(name, racks[place % len(racks)] if racks else None)

    def _add(self, name: str, rack: str | None) -> None:
        chain = name.rpartition("-")[0]
        settings = {
            **self._settings, "node.id.base": str(self._bases[chain]),
            "peer.listener": f"{self.host(name)}:{self._peer_ports[name]}",
            "advertised.peer.listener": f"{self.host(name)}:{self._told_port(name)}",
            "controller.quorum.voters": self._voters, "peer.secret": SECRET,
        }
        arguments = ["--name", name, *(["--rack", rack] if rack else [])]
        self.nodes[name] = node = RunningNode(
            self.directory / name, settings=settings, arguments=arguments)
        if self._hosts is not None:
            node.host = self.host(name)
            node.prefix = self._hosts.prefix(self._places[name])

    def host(self, name: str) -> str:
        """The address that a node listens on."""
        return "127.0.0.1" if self._hosts is None else self._hosts.address(self._places[name])

    def _told_port(self, name: str) -> int:
        """The port that other nodes are given for this one."""
        if self.proxy is not None:
            return self.proxy.ports[self.node_id(name)]
        return self._peer_ports[name]

    def peer_address(self, name: str) -> tuple[str, int]:
        """The address at which a node listens for other nodes."""
        return self.host(name), self._peer_ports[name]

    def add(self, name: str) -> RunningNode:
        """Add a node, which is not a voter and in no chain yet; it is not started."""
        self._peer_ports[name] = hold_port(self)
        self._add(name, None)
        return self.nodes[name]

    def node_id(self, name: str) -> int:
        chain, _, number = name.rpartition("-")
        return self._bases[chain] + int(number)

    def __getitem__(self, name: str) -> RunningNode:
        return self.nodes[name]

    @property
    def bootstrap(self) -> str:
        """The addresses of all nodes, so that a client finds one that is up."""
        return ",".join(node.bootstrap for node in self.nodes.values() if node.port)

    # -- life

    def start(self) -> Self:
        """Start every node, and create the chains."""
        self.launch(self.nodes)
        for chain, members in self.chains.items():
            self.quipu("chain", "create", chain, *members, "--wait", "50")
        return self

    def launch(self, names: Sequence[str] | Mapping[str, RunningNode]) -> None:
        """Start nodes that need each other: all of them first, then wait for each."""
        for name in names:
            self.nodes[name].launch()
        for name in names:
            self.nodes[name].await_ready()

    def kill(self) -> None:
        """SIGKILL for all."""
        for node in self.nodes.values():
            node.kill()

    def stop(self) -> None:
        """SIGTERM for all, one after the other."""
        for name, node in self.nodes.items():
            if node.runs and (code := node.stop()) != 0:
                raise NodeFailed(f"{name} stopped with {code}")

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for node in self.nodes.values():
            node.kill()
        if self.proxy is not None:
            self.proxy.__exit__(kind, error, trace)

    # -- what people do with it

    def quipu(self, *words: str) -> str:
        """Run a `quipu` command against a node that is up; return what it prints."""
        bootstrap = next(node.bootstrap for node in self.nodes.values() if node.runs and node.port)
        done = run_quipu(*words, "--bootstrap", bootstrap)
        assert done.code == 0, f"quipu {' '.join(words)}: {done.err}{self.logs()}"
        return done.out

    def chain(self, name: str) -> dict[str, Any]:
        """The output of `quipu chain describe`."""
        described: dict[str, Any] = json.loads(self.quipu("chain", "describe", name, "--json"))
        return described

    def controller(self) -> str:
        """The current controller, as the running nodes report it."""
        request = DescribeQuorumRequest(topics=[TopicData(
            topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])])
        for _ in self.until("there is a controller"):
            for node in self.nodes.values():
                with contextlib.suppress(OSError), RawConnection(node.host, node.port) as raw:
                    answer: Any = raw.ask(request, 2)
                    for name, other in self.nodes.items():
                        if other.runs and answer.topics and self.node_id(name) == (
                                answer.topics[0].partitions[0].leader_id):
                            return name
        raise AssertionError

    def create_topic(self, topic: str, *, partitions: int = 1, **configs: str) -> None:
        """Create a topic, and return when it is acknowledged; settings have _ for dots."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        new = NewTopic(topic, num_partitions=partitions,
                       config={key.replace("_", "."): value for key, value in configs.items()})
        admin.create_topics([new], request_timeout=20)[topic].result(30)

    def states(self, chain: str) -> dict[str, str]:
        """The members of a chain in their order, each with its state."""
        return {each["name"]: each["state"] for each in self.chain(chain)["members"]}

    def await_serving(self, chain: str, count: int | None = None) -> None:
        """Wait until this many members serve; by default all."""
        wanted = len(self.chains[chain]) if count is None else count
        for _ in self.until(f"{wanted} members of {chain} serve"):
            states = self.states(chain)
            if sum(state == "serving" for state in states.values()) == wanted:
                return

    def in_sync(self, topic: str, partition: int) -> list[str]:
        """The names of the nodes in the ISR, as a stock client gets them.

        Repeated if needed: a node without contact to the controller responds and closes the
        connection, so that clients ask another; librdkafka then drops its later requests.
        """
        for _ in self.until("metadata", 20):
            admin = AdminClient({"bootstrap.servers": self.bootstrap})
            with contextlib.suppress(KafkaException):
                listed = admin.list_topics(topic, timeout=20)
                break
        found = listed.topics[topic].partitions[partition].isrs
        return sorted(name for name in self.nodes if self.node_id(name) in found)

    def until(self, what: str, seconds: float = WAIT_SECONDS_MAX) -> Iterator[None]:
        """Repeat until it succeeds; after the time limit fail with the logs of all nodes."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            yield
            time.sleep(0.1)
        raise AssertionError(f"not within {seconds} s: {what}{self.logs()}")

    def logs(self, size: int = 3000) -> str:
        return "".join(f"\n--- {name}\n{node.log_text()[-size:]}"
                       for name, node in self.nodes.items())

    def differences(self, chain: str, topics: Sequence[str]) -> str:
        """What `quipu log diff` prints for replicas of topics; empty if they are identical."""
        found, compared = [], set()
        first, *others = [self.directory / name for name in self.chains[chain]]
        for log in sorted(first.iterdir()):
            topic = log.name.rpartition(".")[0].rpartition("-")[0]
            if topic not in topics or not is_log(log.name):
                continue
            compared.add(topic)
            for other in others:
                done = subprocess.run(
                    [sys.executable, "-m", "quipu", "log", "diff", str(log),
                     str(other / log.name)],
                    env=environment(), capture_output=True, text=True, check=False)
                if done.returncode != 0:
                    found.append(f"{log} {other}: {done.stdout}{done.stderr}")
        assert compared == set(topics), (compared, topics)
        return "\n".join(found)
