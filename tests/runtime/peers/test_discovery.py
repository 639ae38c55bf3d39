"""Finding nodes by name, against a real, tiny DNS server on loopback."""

import asyncio
from collections.abc import Callable

import pytest

from quipu.model.chains import member_key
from quipu.model.errors import SettingError
from quipu.model.settings_types import Address
from quipu.runtime.peers import discovery
from quipu.runtime.peers.discovery import (
    Discovery,
    DiscoverySource,
    NothingDiscovered,
    parse_source,
)
from tests.harness.names import Records, name_server
from tests.looped import looped


def looking(where: str, at: Address, meet: Callable[[str, int], None] = print) -> Discovery:
    return Discovery(where, meet, interval_seconds=0.02, nameserver=at)


@looped
async def test_srv_records_give_hosts_and_ports() -> None:
    """V5: the SRV records of a headless service, and the addresses of their targets."""
    records: Records = {
        ("_peer._tcp.quipu.", "SRV"): [
            "0 1 9093 a-0.quipu.", "0 1 9094 a-1.quipu.", "0 1 9095 .", "0 1 0 a-0.quipu."],
        ("a-0.quipu.", "A"): ["10.0.0.1"],
        ("a-1.quipu.", "A"): ["10.0.0.2"],
        ("a-1.quipu.", "AAAA"): ["fd00::2"],
    }
    async with name_server(records) as (_, at):
        found = await looking("srv:_peer._tcp.quipu", at).look()
    assert found == [("10.0.0.1", 9093), ("10.0.0.2", 9094), ("fd00::2", 9094)]


@looped
async def test_a_records_give_addresses_for_one_port() -> None:
    """V5: the A and AAAA records of a headless service."""
    records: Records = {
        ("peers.quipu.", "A"): ["10.0.0.2", "10.0.0.1"], ("peers.quipu.", "AAAA"): ["fd00::1"]}
    async with name_server(records) as (_, at):
        found = await looking("a:peers.quipu:9093", at).look()
    assert found == [("10.0.0.1", 9093), ("10.0.0.2", 9093), ("fd00::1", 9093)]


@looped
async def test_a_static_list_needs_no_dns() -> None:
    """V5: addresses that are written down are taken as they are."""
    found = await looking("static:a-0:1, [::1]:2", Address("127.0.0.1", 9)).look()
    assert found == [("a-0", 1), ("::1", 2)]


@looped
async def test_names_that_fail_are_told_once_and_asked_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """V5: a service whose nodes are not there yet is found when they are."""
    caplog.set_level("INFO")
    met: list[Address] = []
    async with name_server({}) as (server, at):
        seeker = looking("a:peers.quipu:9093", at, lambda *address: met.append(Address(*address)))
        running = asyncio.ensure_future(seeker.run())
        while len(server.asked) < 5:
            await asyncio.sleep(0.01)
        assert met == []
        assert caplog.text.count("found no nodes") == 1
        assert "does not exist" in caplog.text
        server.records["peers.quipu.", "A"] = ["10.0.0.1"]
        while len(met) < 2:
            await asyncio.sleep(0.01)
        running.cancel()
    assert set(met) == {("10.0.0.1", 9093)}
    assert caplog.text.count("works again") == 1


@looped
async def test_a_name_server_that_says_nothing_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """V5: a look-up ends."""
    monkeypatch.setattr(discovery, "LOOK_UP_SECONDS_MAX", 0.2)
    async with name_server({}) as (server, at):
        server.is_mute = True
        with pytest.raises(NothingDiscovered):
            await looking("srv:peers.quipu", at).look()
        assert server.asked


@pytest.mark.parametrize(
    "text", ["", "srv:", "srv:a:1", "a:name", "a::1", "a:name:0", "static:", "static:a", "dns:x",
             "static:a:1,b", "a:name:70000"])
def test_a_source_that_is_none_is_told(text: str) -> None:
    """K9: the message says what may be written."""
    with pytest.raises(SettingError, match="must be static:HOST:PORT"):
        parse_source(text)


def test_sources_are_read() -> None:
    """V5: the three ways to find nodes."""
    assert parse_source("srv:_x._tcp.y") == DiscoverySource(name="_x._tcp.y")
    assert parse_source("a:y:7") == DiscoverySource(name="y", port=7)
    assert parse_source("static:y:7") == DiscoverySource((Address("y", 7),))


def test_members_are_in_numeric_order() -> None:
    """V6: a-10 comes after a-2."""
    names = ["b-0", "a-10", "a-2", "a-b-1", "a-0"]
    assert sorted(names, key=member_key) == ["a-0", "a-2", "a-10", "a-b-1", "b-0"]
