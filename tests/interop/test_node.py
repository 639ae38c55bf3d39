"""A node whose tier is on a server of another maker, killed while it copies a segment there."""

import asyncio
import random
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from quipu.remote.segments.names import SegmentName, find_name
from quipu.runtime.objects.urls import open_store
from tests.harness.node import RunningNode
from tests.harness.progress import wait_for
from tests.harness.store_proxy import StoreProxy, WireFault
from tests.interop.servers import StoreServer
from tests.kill.load import Load, create_topic, read_all
from tests.kill.test_kill_tiered import (
    LOCAL_BYTES,
    SEGMENT_BYTES,
    SETTINGS,
    TIERED,
    TIMES_LARGER,
    local_bytes,
)

pytestmark = pytest.mark.interop

SEED = 20
SIZE_MIN = 2 * TIMES_LARGER * LOCAL_BYTES  # of both partitions
VALUE_SIZE = 100  # on average, and more with what is around it


def object_sizes(url: str) -> dict[SegmentName, int]:
    """The size of every object of a store, but for the mark of the cluster that it belongs to."""

    async def read() -> dict[SegmentName, int]:
        store = open_store(url, lambda: 0)
        page = await store.list()
        await store.close()
        assert page.after is None
        sizes = {}
        for info in page.objects:
            name = find_name(info.key)
            assert name is not None or info.key.startswith("clusters/"), info.key
            if name is not None:
                sizes[name] = info.size
        return sizes

    return asyncio.run(read())


def repeated(url: str) -> list[SegmentName]:
    """Objects that hold what another object holds, too."""
    known: set[tuple[int, int]] = set()
    found = []
    for name in object_sizes(url):
        if (name.partition, name.start_offset) in known:
            found.append(name)
        known.add((name.partition, name.start_offset))
    return found


def test_a_tier_on_a_server_of_another_maker(server: StoreServer, tmp_path: Path) -> None:
    """R12, R13, R15: a topic 20 times as large as its local retention, on a node that is killed
    while a copy is under way, is read from its beginning by a stock client, as it was produced.
    Nothing is left over of the copy that was not finished, nor of the topic once it is deleted.
    The credentials are in no log.
    """
    bucket = server.bucket()
    direct = server.url(bucket)
    with StoreProxy(server.port) as proxy:
        settings = {**SETTINGS, "remote.log.storage.url": server.url(bucket, port=proxy.port)}
        node = RunningNode(tmp_path / "data", settings=settings)
        node.environment = server.variables
        with node:
            create_topic(node.bootstrap, "load", TIERED)
            load = Load(node.bootstrap, "load", random.Random(SEED))
            while not object_sizes(direct):
                load.run(0.1)

            proxy.break_next(WireFault.LOSE_RESPONSE, b"PUT")
            before = object_sizes(direct)
            while object_sizes(direct).keys() == before.keys():
                load.run(0.05)
            node.kill()  # in the middle of a copy: the object is there, and the node never knew
            proxy.heal()
            node.start()

            while load.acknowledged * VALUE_SIZE < SIZE_MIN:
                load.run(0.2)
            load.finish()
            wait_for(
                lambda: max(local_bytes(node, "load").values()) <= LOCAL_BYTES + SEGMENT_BYTES,
                what=lambda: f"{local_bytes(node, 'load')} {node.log_text()[-3000:]}")
            assert sum(object_sizes(direct).values()) > SIZE_MIN

            node.restart()  # nothing is cached
            reads = read_all(node.bootstrap, "load")
            assert load.anomalies(reads) == []
            assert len({read.value for read in reads}) == len(reads) == load.acknowledged
            wait_for(lambda: not repeated(direct), what=lambda: str(repeated(direct)))

            admin = AdminClient({"bootstrap.servers": node.bootstrap})
            admin.delete_topics(["load"])["load"].result(30)
            wait_for(lambda: not object_sizes(direct), what=lambda: str(object_sizes(direct)))
            assert server.secret not in node.log_text()
