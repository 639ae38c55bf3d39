"""Diskless topics on a server of another maker: a node is killed, and its control plane lost."""

import random
from pathlib import Path

import pytest

from tests.harness.command import run_quipu
from tests.harness.node import RunningNode
from tests.harness.progress import wait_for
from tests.harness.store_proxy import StoreProxy, WireFault
from tests.interop.servers import StoreServer
from tests.kill.load import Load, create_topic, read_all

pytestmark = pytest.mark.interop

SEED = 21
SECONDS = 1.0


def test_diskless_topics_on_a_server_of_another_maker(
    server: StoreServer, tmp_path: Path
) -> None:
    """D38, D33, D37: what an idempotent producer writes is there once and in order, though
    responses of the store are lost and the node is killed; also from a control plane that was
    rebuilt from the objects, at the same offsets.  The credentials are in no log.
    """
    bucket = server.bucket()
    with StoreProxy(server.port) as proxy:
        node = RunningNode(tmp_path / "data", settings={
            "diskless.storage.system.enable": "true", "diskless.flush.interval.ms": "20",
            "diskless.storage.url": server.url(bucket, port=proxy.port)})
        node.environment = server.variables
        with node:
            create_topic(node.bootstrap, "load", {"diskless.enable": "true"})
            load = Load(node.bootstrap, "load", random.Random(SEED))
            load.run(SECONDS)
            proxy.break_next(WireFault.LOSE_RESPONSE, b"PUT")
            load.run(SECONDS)
            node.kill()  # its objects are there, and it never knew
            proxy.heal()
            node.start()
            load.run(SECONDS)
            load.finish()
            before = read_all(node.bootstrap, "load")
            assert load.anomalies(before) == []
            assert len(before) == load.acknowledged

            assert node.stop() == 0
            plane = node.directory / "diskless.sqlite"
            for path in plane.parent.glob("diskless.sqlite*"):
                path.unlink()
            done = run_quipu("diskless", "rebuild", "--control-plane", f"sqlite://{plane}",
                             "--storage", server.url(bucket), variables=server.variables)
            assert done.code == 0, done.out + done.err
            node.start()
            assert sorted(read_all(node.bootstrap, "load")) == sorted(before)
            load.run(SECONDS)
            load.finish()
            wait_for(lambda: load.acknowledged > len(before))
            assert load.anomalies(read_all(node.bootstrap, "load")) == []
            assert server.secret not in node.log_text()
