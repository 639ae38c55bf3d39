"""What a cluster of `quipu dev` consists of, and what a second start may ask for."""

import json
import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from quipu.cli import dev_layout
from quipu.cli.dev_layout import DevOptions, continued, load, plan, save
from quipu.cli.errors import CommandFailed
from quipu.model.settings_sources import broker_settings, from_properties

NOTHING = DevOptions(
    node_count=None, chain=None, chain_count=None, racks=(), base_port=None, settings={})


def test_three_nodes_of_one_chain_by_default() -> None:
    """V2, V6: a-0 to a-2, on ports that can be remembered."""
    layout = plan(NOTHING, "s")
    assert layout.chains == {"a": ["a-0", "a-1", "a-2"]}
    assert layout.bootstrap == "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"
    assert [node.node_id for node in layout.nodes] == [1, 2, 3]
    assert [(node.peer_port, node.metrics_port) for node in layout.nodes] == [
        (9192, 9292), (9193, 9293), (9194, 9294)]


def test_each_node_is_told_who_it_is_and_who_votes(tmp_path: Path) -> None:
    """V5: the files of settings are those of `quipu start`."""
    options = replace(NOTHING, racks=("x", "y"), settings={"num.partitions": "4"})
    layout = plan(options, r"se\cret")
    read = broker_settings(
        from_properties(layout.properties(layout.nodes[1], tmp_path), "a-1.properties"))
    assert (read.node_name, read.own_id, read.broker_rack) == ("a-1", 2, "y")
    assert [str(each) for each in (*read.listeners, read.peer_listener)] == [
        "PLAINTEXT://127.0.0.1:9093", "127.0.0.1:9193"]
    assert [str(voter) for voter in read.controller_quorum_voters] == [
        "1@127.0.0.1:9192", "2@127.0.0.1:9193", "3@127.0.0.1:9194"]
    assert (read.log_dirs, read.peer_secret) == (str(tmp_path / "a-1"), r"se\cret")
    assert read.num_partitions == 4


def test_nodes_share_a_remote_tier_below_their_directory(tmp_path: Path) -> None:
    """R13: a tier on a laptop needs one setting; a place that is given is used instead."""
    enabled = {"remote.log.storage.system.enable": "true"}

    def read(settings: dict[str, str]) -> list[str | None]:
        layout = plan(replace(NOTHING, settings=settings), "s")
        return [broker_settings(from_properties(layout.properties(node, tmp_path), "file"))
                .remote_log_storage_url for node in layout.nodes]

    assert read(enabled) == [f"file://{tmp_path}/remote"] * 3
    assert read({**enabled, "remote.log.storage.url": "s3://bucket"}) == ["s3://bucket"] * 3
    assert read({}) == [None] * 3


def test_nodes_share_a_store_and_a_control_plane_for_diskless_topics(tmp_path: Path) -> None:
    """D2: one setting gives them both; what is named is used instead, and no PostgreSQL is run."""
    enabled = {"diskless.storage.system.enable": "true"}
    named = {"diskless.control.plane.url": "postgresql://q:w@db/q",
             "diskless.storage.url": "s3://b"}

    def read(settings: dict[str, str]) -> tuple[bool, set[tuple[str | None, str | None]]]:
        layout = plan(replace(NOTHING, settings=settings), "s")
        found = [broker_settings(from_properties(layout.properties(node, tmp_path / "a b"), "file"))
                 for node in layout.nodes]
        return layout.needs_postgres, {
            (each.diskless_storage_url, each.diskless_control_plane_url) for each in found}

    assert read({}) == (False, {(None, None)})
    place = f"{tmp_path}/a%20b"
    assert read(enabled) == (True, {
        (f"file://{place}/diskless", f"postgresql://postgres@/postgres?host={place}/postgres")})
    assert read({**enabled, **named}) == (False, {("s3://b", "postgresql://q:w@db/q")})


@pytest.mark.parametrize(("nodes", "chains", "voters"), [
    (1, 1, ["a-0"]),
    (2, 1, ["a-0"]),
    (3, 1, ["a-0", "a-1", "a-2"]),
    (7, 1, ["a-0", "a-1", "a-2"]),
    (2, 2, ["a-0", "b-0", "a-1"]),
    (1, 5, ["a-0", "b-0", "c-0"]),
])
def test_an_odd_number_votes_spread_over_the_chains(
    nodes: int, chains: int, voters: list[str]
) -> None:
    """V5: two voters would be worse than one."""
    layout = plan(replace(NOTHING, node_count=nodes, chain_count=chains), "s")
    assert [voter.name for voter in layout.voters] == voters


def test_several_chains_have_names_and_numbers_of_their_own() -> None:
    """V4: a node belongs to one chain."""
    layout = plan(replace(NOTHING, node_count=2, chain_count=3), "s")
    assert layout.chains == {"a": ["a-0", "a-1"], "b": ["b-0", "b-1"], "c": ["c-0", "c-1"]}
    assert [node.node_id for node in layout.nodes] == [1, 2, 1001, 1002, 2001, 2002]
    other = plan(replace(NOTHING, node_count=1, chain="orders", chain_count=2), "s")
    assert list(other.chains) == ["orders", "orders2"]


def test_free_ports_are_all_different() -> None:
    """K9: --base-port 0."""
    layout = plan(replace(NOTHING, base_port=0), "s")
    ports = [port for node in layout.nodes
             for port in (node.port, node.peer_port, node.metrics_port)]
    assert len(set(ports)) == 9
    assert all(ports)


def test_a_cluster_is_continued_as_it_was_left(tmp_path: Path) -> None:
    """V16: the same nodes, ports and secret; settings add up."""
    first = plan(replace(NOTHING, node_count=2, racks=("x", "y"), base_port=0,
                         settings={"num.partitions": "4"}), "secret")
    save(first, tmp_path)
    found = load(tmp_path)
    assert found == first
    assert (tmp_path / "dev.json").stat().st_mode & 0o077 == 0
    assert (tmp_path / "a-0.properties").stat().st_mode & 0o077 == 0
    again = continued(first, replace(
        NOTHING, node_count=2, chain="a", chain_count=1, racks=("x", "y"), base_port=0,
        settings={"log.retention.hours": "1"}), tmp_path)
    assert again.nodes == first.nodes
    assert again.settings == {"num.partitions": "4", "log.retention.hours": "1"}


@pytest.mark.parametrize(("options", "option"), [
    (replace(NOTHING, node_count=4), "--nodes"),
    (replace(NOTHING, chain="b"), "--chain,"),
    (replace(NOTHING, chain_count=2), "--chains"),
    (replace(NOTHING, base_port=7000), "--base-port"),
    (replace(NOTHING, racks=("x",)), "--racks"),
], ids=lambda value: value if isinstance(value, str) else "")
def test_another_cluster_needs_another_directory(
    options: DevOptions, option: str, tmp_path: Path
) -> None:
    """K9: what contradicts the cluster that is there is told, and changes nothing."""
    with pytest.raises(CommandFailed, match=f"leave out {option}"):
        continued(plan(NOTHING, "s"), options, tmp_path)


@pytest.mark.parametrize(("options", "message"), [
    (replace(NOTHING, node_count=101), "too many"),
    (replace(NOTHING, chain="A b"), "lower-case letters"),
    (replace(NOTHING, base_port=65_400), "above 65535"),
], ids=["nodes", "name", "ports"])
def test_what_cannot_be_is_refused(options: DevOptions, message: str) -> None:
    """K9: before anything is written."""
    with pytest.raises(CommandFailed, match=message):
        plan(options, "s")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"nodes": [], "secret": "", "settings": {}}',
                                  '{"nodes": [{"name": 1}], "secret": "", "settings": {}}'])
def test_a_layout_that_is_none_is_told(text: str, tmp_path: Path) -> None:
    """K9: a file that somebody else wrote."""
    (tmp_path / dev_layout.FILE_NAME).write_text(text)
    with pytest.raises(CommandFailed, match="choose another --dir"):
        load(tmp_path)


def test_a_port_that_is_taken_is_told_before_the_start() -> None:
    """K9: with the node that needs it, and what to do."""
    layout = plan(replace(NOTHING, base_port=0), "s")
    dev_layout.check_ports(layout)
    with socket.create_server(("127.0.0.1", layout.nodes[1].peer_port)), pytest.raises(
            CommandFailed,
            match=rf"port \d+ for a-1: Address already in use; stop process {os.getpid()},"):
        dev_layout.check_ports(layout)


def test_the_file_can_be_read_by_people(tmp_path: Path) -> None:
    """K9: plain JSON."""
    save(plan(NOTHING, "s"), tmp_path)
    assert json.loads((tmp_path / "dev.json").read_text())["nodes"][0]["name"] == "a-0"
