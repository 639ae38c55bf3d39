"""Segments in a class of a user's own: the one that the documentation shows, and others."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from quipu.broker.tiering.opening import storage_url
from quipu.client.admin.topics import create_topic
from quipu.client.cluster import Cluster
from quipu.client.ranges import Range
from quipu.client.remote_log import describe_remote_log
from quipu.client.settings import client_settings
from quipu.launch.process import NodeFailed
from quipu.model.errors import SettingError
from quipu.model.ids import ZERO_UUID
from quipu.model.settings_sources import broker_settings, from_assignments, from_properties
from quipu.remote.segments.managed_storage import make_storage_manager
from tests.broker.tiering.test_tiering import COUNT, filled, read_all, tiered_node, until, values
from tests.harness.command import run_quipu
from tests.harness.node import RunningNode
from tests.harness.page_module import page_module
from tests.harness.progress import wait_for
from tests.looped import looped
from tests.pipeline.spark.broker import Broker

MODULE = "folder_storage"
CLASS = "remote.log.storage.manager.class.name"
PREFIX = "remote.log.storage.manager.impl.prefix"
TIERED = {"remote.storage.enable": "true", "segment.bytes": "16384",
          "local.retention.bytes": "16384"}


@pytest.fixture
def classes(tmp_path: Path) -> Iterator[Path]:
    """A directory with the module of the page."""
    with page_module("operating/remote-storage.md", tmp_path / "classes", MODULE) as folder:
        yield folder


def test_a_node_stores_segments_in_a_class_of_one_s_own(tmp_path: Path, classes: Path) -> None:
    """R13: a process finds the class on PYTHONPATH, and again after it was killed."""
    stored = tmp_path / "stored"
    node = RunningNode(tmp_path / "data", settings={
        "remote.log.storage.system.enable": "true", CLASS: f"{MODULE}.FolderStorage",
        "rsm.config.folder": str(stored), "remote.log.manager.task.interval.ms": "50",
        "log.retention.check.interval.ms": "100"})
    node.environment["PYTHONPATH"] = f"{Path(__file__).parents[3] / 'src'}:{classes}"
    with node:
        settings = client_settings({"bootstrap.servers": node.bootstrap})
        with Cluster(settings) as cluster:
            create_topic(cluster, "t", settings=TIERED)
        sender = Broker(node.bootstrap)
        for number in range(0, 200, 10):
            sender.send("t", *(f"k:{each:01000d}" for each in range(number, number + 10)))
        with Cluster(settings) as cluster:
            def moved() -> bool:
                (part,) = describe_remote_log(cluster, [Range("t", 0, 0, 200)]).values()
                assert part.store_url is None  # so that Spark reads through the broker
                return part.local_start > 100
            wait_for(moved)
        assert list(stored.glob("*.segment"))
        node.kill()
        node.start()
        assert not (tmp_path / "data" / "remote").exists()
        read = run_quipu("consume", "t", "--exit", "--bootstrap", node.bootstrap)
        assert read.out.count("\n") == 200


@looped
async def test_deletions_reach_the_class(tmp_path: Path, classes: Path) -> None:
    """R13, remote.segments.M3: the class path; a deleted topic leaves no file behind."""
    stored = tmp_path / "stored"
    async with tiered_node(
            tmp_path, remote_log_storage_manager_class_path=str(classes),
            remote_log_storage_manager_class_name=f"{MODULE}.FolderStorage",
            rsm_config_folder=str(stored)) as node:
        await filled(node)
        assert await read_all(node, 0, COUNT) == values(range(COUNT))
        assert list(stored.iterdir())
        await node.node.broker.cluster.controller.delete_topics([("t", ZERO_UUID)])
        await until(lambda: not list(stored.iterdir()))


@pytest.mark.parametrize(("code", "name", "message"), [
    ("", "nowhere.Storage", "nowhere cannot be imported"),
    ("", "own.Storage", "own has no class Storage"),
    ("", "Storage", "is no class; write MODULE.CLASS"),
    ("Storage = 3", "own.Storage", "own has no class Storage"),
    ("class Storage:\n    def __init__(self, settings): 1 / 0", "own.Storage",
     "Storage cannot be made (ZeroDivisionError"),
    ("class Storage:\n    __init__ = close = copy_log_segment_data = lambda *_: None",
     "own.Storage", "has no fetch_log_segment, delete_log_segment_data; a class that"),
])
def test_wrong_classes_end_the_start(tmp_path: Path, code: str, name: str, message: str) -> None:
    """R13: with an error that says what is wrong."""
    (tmp_path / "own.py").write_text(code)
    try:
        with pytest.raises(SettingError, match=re.escape(message)):
            make_storage_manager(name, class_path=str(tmp_path), settings={}, broker_id=1)
    finally:
        sys.modules.pop("own", None)
        sys.path.remove(str(tmp_path))


def test_a_process_with_a_wrong_class_does_not_start(tmp_path: Path) -> None:
    """R13: what is wrong is on its standard error."""
    node = RunningNode(tmp_path / "data", settings={
        "remote.log.storage.system.enable": "true", CLASS: "nowhere.Storage"})
    with pytest.raises(NodeFailed, match="nowhere cannot be imported"), node:
        pass


def test_settings_of_classes() -> None:
    """R13, model.C2: they need a class; a prefix of one's own; no value is shown."""
    secret = "s3cret"
    settings = broker_settings(from_properties(
        f"{CLASS}=a.B\nrsm.config.password={secret}\nrsm.config.a.b=1", "f"))
    assert dict(settings.of_classes) == {"rsm.config.password": secret, "rsm.config.a.b": "1"}
    assert secret not in repr(settings)
    assert storage_url(settings) is None
    own = broker_settings(from_assignments([
        f"{CLASS}=a.B", f"{PREFIX}=my.", "my.x=1"]))
    assert own.of_classes == (("my.x", "1"),)
    for wrong, message in (
            (["rsm.config.x=1"], "unknown setting rsm.config.x"),
            ([f"{CLASS}="], "must be one line"),
            (["rlmm.config.x=1"], "unknown setting rlmm.config.x"),
            ([f"{CLASS}=a.B", "rsm.confg.x=1"], "unknown setting rsm.confg.x"),
            ([f"{CLASS}=a.B", f"{PREFIX}=x", "x=1"], "end with a dot"),
            ([f"{CLASS}=a.B", f"{PREFIX}=log.", "log.x=1"], "no name of")):
        with pytest.raises(SettingError, match=re.escape(message)):
            broker_settings(from_assignments(wrong))
    java = broker_settings(from_assignments([
        f"{CLASS}=io.aiven.kafka.tieredstorage.RemoteStorageManager", "rsm.config.chunk.size=1",
        "remote.log.storage.url=file:///x"]))
    assert storage_url(java) == "file:///x"
