"""Limits of connections: numbers and rates, per address and in total."""

import asyncio
import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.runtime.net.admission import BURST_SECONDS, DELAY_SECONDS_MAX, Admission, address_key
from quipu.runtime.net.limits import NetLimits
from tests.runtime.net.frame_world import World, frame, run, until


def test_one_address_does_not_take_everything() -> None:
    """K8: runtime.A1; others get in while one is refused."""
    admission = Admission(NetLimits(connections_max=100, per_address_max=3))
    verdicts = [admission.admit("10.0.0.1", count, 0.0).refused for count in range(5)]

    assert verdicts == ["", "", "", "max.connections.per.ip", "max.connections.per.ip"]
    assert not admission.admit("10.0.0.2", 3, 0.0).refused
    admission.leave("10.0.0.1", 0.0)
    assert not admission.admit("10.0.0.1", 3, 0.0).refused


def test_an_override_counts_for_its_address_alone() -> None:
    """K8: Kafka's max.connections.per.ip.overrides, more or fewer; 0 shuts an address out."""
    limits = NetLimits(per_address_max=1, per_address_overrides={"10.0.0.1": 2, "10.0.0.9": 0})
    admission = Admission(limits)

    assert [admission.admit("10.0.0.1", 0, 0.0).refused for _ in range(3)] == [
        "", "", "max.connections.per.ip"]
    assert admission.admit("10.0.0.9", 0, 0.0).refused == "max.connections.per.ip"


@pytest.mark.parametrize(("host", "key"), [
    ("10.0.0.1", "10.0.0.1"),
    ("::ffff:10.0.0.1", "10.0.0.1"),
    ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
    ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
    ("::1", "::/64"),
    ("not:an:address", "not:an:address"),
])
def test_an_ipv6_address_counts_as_its_network(host: str, key: str) -> None:
    """K8: runtime.A1; one machine has 2^64 of them."""
    assert address_key(host) == key


def test_over_the_rate_connections_wait_and_then_are_refused() -> None:
    """K8: runtime.A2; a burst is taken, then one in each tenth of a second."""
    admission = Admission(NetLimits(rate_max=10))
    burst = [admission.admit(f"10.0.0.{n}", 0, 0.0) for n in range(int(10 * BURST_SECONDS))]
    assert all(verdict == ("", 0.0) for verdict in burst)

    late = [admission.admit("10.0.1.1", 0, 0.0) for _ in range(20)]

    delays = [verdict.delay_seconds for verdict in late if not verdict.refused]
    assert delays == pytest.approx([n / 10 for n in range(1, 11)])
    assert {verdict.refused for verdict in late[10:]} == {"max.connection.creation.rate"}


def test_a_crowd_that_is_refused_keeps_nobody_waiting() -> None:
    """K8: runtime.A3; a million attempts of one address leave the others their half of the rate."""
    admission = Admission(NetLimits(rate_max=100, rate_per_address_max=50))
    for number in range(100_000):
        now = number / 10_000
        admission.admit("10.0.0.1", 0, now)

    assert admission.admit("10.0.0.2", 0, 10.0) == ("", 0.0)


def test_what_is_kept_of_addresses_is_bounded() -> None:
    """K8: runtime.A4; addresses that came and went are forgotten."""
    admission = Admission(NetLimits(rate_max=1_000_000, rate_per_address_max=500_000))
    for number in range(50_000):
        host = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        admission.admit(host, 0, float(number))
        admission.leave(host, float(number))

    assert len(admission._addresses) < 5000


@settings(max_examples=50)
@given(gaps=st.lists(st.floats(0, 0.5), min_size=1, max_size=300))
def test_the_rate_holds_over_any_time(gaps: list[float]) -> None:
    """K8: runtime.A2; in any window no more are served than the burst and the rate allow."""
    admission = Admission(NetLimits(rate_max=20))
    now, served = 0.0, []
    for gap in gaps:
        now += gap
        verdict = admission.admit("10.0.0.1", 0, now)
        if not verdict.refused:
            assert verdict.delay_seconds <= DELAY_SECONDS_MAX
            served.append(now + verdict.delay_seconds)
    for start in range(len(served)):
        for end in range(start, len(served), 7):
            allowed = 20 * (BURST_SECONDS + served[end] - served[start]) + 1
            assert end - start + 1 <= allowed + 1e-6


def test_a_delayed_connection_is_served_later_and_may_go_before() -> None:
    """K8: over real sockets: the second waits its turn, the third is seen to leave."""

    async def story(world: World) -> None:
        for _ in range(int(BURST_SECONDS) * 2):
            world.socket().close()
        await until(lambda: world.server.stats.accepted == int(BURST_SECONDS) * 2)
        late = world.socket()
        gone = world.socket()
        late.sendall(frame(b"hello"))
        await until(lambda: world.server.stats.delayed == 2)
        gone.close()
        await until(lambda: world.server.stats.closed["hung_up"] == 1)
        assert not any(handler.frames for handler in world.handlers)
        await until(lambda: any(handler.frames == [b"hello"] for handler in world.handlers))
        late.close()
        await until(lambda: world.server.stats.connections == 0)

    run(story, NetLimits(rate_max=2))


def test_a_crowd_of_one_address_leaves_room_for_another() -> None:
    """K8: over real sockets, from 127.0.0.2 and 127.0.0.1."""

    async def story(world: World) -> None:
        def dial(source: str) -> socket.socket:
            return world.socket(source)

        crowd = [dial("127.0.0.2") for _ in range(20)]
        await until(lambda: world.server.stats.refused["max.connections.per.ip"] == 15)
        other = dial("127.0.0.1")
        other.sendall(frame(b"hello"))
        await until(lambda: any(handler.frames for handler in world.handlers))
        for peer in (*crowd, other):
            peer.close()
        await asyncio.sleep(0)

    run(story, NetLimits(connections_max=10, per_address_max=5))
