"""Frames between nodes are authenticated: only the next one that the other side sent is taken."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quipu.runtime.peers.frame_mac import TAG_SIZE, FrameMac
from quipu.runtime.peers.hello import Handshake
from tests.runtime.peers.peer_cluster import CHAIN, ONE, TWO, Cluster, introduce, run, until
from tests.runtime.peers.test_hello import hello

SECRET = "peer.secret=a secret of the whole cluster"


def sealed(mac: FrameMac, kind: int, *body: bytes) -> bytes:
    """A frame without its size."""
    size = 1 + sum(map(len, body)) + TAG_SIZE
    head = size.to_bytes(4, "big") + bytes([kind])
    return head[4:] + b"".join(body) + mac.tag(head, body)


@given(bodies=st.lists(st.binary(max_size=50), min_size=1, max_size=5), data=st.data())
def test_only_the_next_unaltered_frame_opens(bodies: list[bytes], data: st.DataObject) -> None:
    """K8: a flipped bit, a gap, a repetition or another order is found."""
    sender, receiver = FrameMac(b"key"), FrameMac(b"key")
    frames = [sealed(sender, 2, body[:3], body[3:]) for body in bodies]
    broken = data.draw(st.integers(0, len(frames) - 1))
    for frame in frames[:broken]:
        assert receiver.verifies(memoryview(frame))
    frame = bytearray(frames[broken])
    match data.draw(st.sampled_from(["bit", "gap", "again", "cut", "longer", "other key"])):
        case "bit":
            frame[data.draw(st.integers(0, len(frame) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        case "gap":
            frame = bytearray(sealed(sender, 2, b"later"))
        case "again" if broken:
            frame = bytearray(frames[broken - 1])
        case "cut":
            del frame[-data.draw(st.integers(1, len(frame))) :]
        case "longer":
            frame += b"\0"
        case _:
            frame = bytearray(sealed(FrameMac(b"other"), 2, bodies[broken]))
    assert not receiver.verifies(memoryview(frame))


def test_keys_differ_by_direction_and_by_connection() -> None:
    """K8: nothing that was overheard is of use elsewhere, nor when it is sent back."""

    def talk(nonce: int) -> tuple[Handshake, Handshake]:
        dialler = Handshake(mine=hello(1)._replace(nonce=bytes([nonce]) * 32), secret=b"s",
                            is_dialler=True)
        acceptor = Handshake(mine=hello(2), secret=b"s", is_dialler=False)
        proof = dialler.receive(memoryview(acceptor.receive(memoryview(dialler.first()))))
        acceptor.receive(memoryview(proof))
        dialler.receive(memoryview(acceptor.ready()))
        return dialler, acceptor

    (one, two), (later, _) = talk(1), talk(2)
    assert one.keys is not None
    assert two.keys is not None
    assert later.keys is not None
    assert one.keys == two.keys[::-1]
    assert len({*one.keys, *later.keys}) == 4


@pytest.mark.parametrize(("one_signs", "two_signs"), [
    ("true", "true"), ("true", "false"), ("false", "true"), ("false", "false")])
def test_frames_have_tags_unless_both_do_without(one_signs: str, two_signs: str) -> None:
    """K8: one side that wants them gets them; both talk in any case."""

    async def story(cluster: Cluster) -> None:
        setting = "peer.frame.authentication.enable"
        one = await cluster.node(1, SECRET, f"{setting}={one_signs}")
        two = await cluster.node(2, SECRET, f"{setting}={two_signs}")
        introduce(one, two)
        await until(lambda: one.is_up(TWO) and two.is_up(ONE))
        assert one.send(TWO, CHAIN, [b"x"])
        await until(lambda: cluster.got[two] == [(1, b"x")])
        has_tags = "true" in (one_signs, two_signs)
        assert all((link._sent is not None) is has_tags for link in one._links)

    run(story)


@pytest.mark.parametrize("pairs", [(SECRET,), ()], ids=["secret", "none"])
def test_messages_of_every_size_arrive(pairs: tuple[str, ...]) -> None:
    """V5: whole and in order, be they sent later or at once, with and without tags."""

    async def story(cluster: Cluster) -> None:
        one, two = await cluster.pair(*pairs)
        sent = [bytes([number]) * size for number, size in
                enumerate([0, 1, 100, 4000, 4095, 4096, 5000, 70_000, 1 << 20, 3 << 20])]
        for number, body in enumerate(sent):
            while not one.send(TWO, CHAIN, [body[:3], memoryview(body)[3:]],
                               at_once=bool(number % 2)):
                await asyncio.sleep(0.01)
        await until(lambda: len(cluster.got[two]) == len(sent))
        assert [body for _, body in cluster.got[two]] == sent

    run(story)


@pytest.mark.parametrize("forged", [
    b"\x00\x00\x00\x0b\x02" + b"x" * 10,
    b"\x00\x00\x00\x1b\x02" + b"x" * 26,
    b"\x00\x00\x00\x00",
], ids=["no tag", "wrong tag", "empty"])
def test_a_frame_that_the_peer_did_not_send_closes_the_link(forged: bytes) -> None:
    """K8: runtime.K4; bytes that another process writes into a connection between two nodes are
    refused; the nodes connect again.
    """

    async def story(cluster: Cluster) -> None:
        one, two = await cluster.pair(SECRET)
        link = next(link for link in one._links if link.is_dialled)
        link.connection.send([forged])
        await until(lambda: ("down", TWO) in cluster.heard[one].told)
        await until(lambda: one.is_up(TWO) and two.is_up(ONE))
        assert cluster.got[two] == []
        assert one.send(TWO, CHAIN, [b"real"])
        await until(lambda: cluster.got[two] == [(1, b"real")])

    run(story)


def test_a_frame_that_is_repeated_is_not_taken_twice() -> None:
    """K8: the same bytes again are no message."""

    async def story(cluster: Cluster) -> None:
        one, two = await cluster.pair(SECRET)
        link = next(link for link in one._links if link.is_dialled)
        assert link._sent is not None
        assert one.send(TWO, CHAIN, [b"once"])
        await until(lambda: cluster.got[two] == [(1, b"once")])
        link._sent._number -= 1  # so that the next frame has the same tag, and is the same bytes
        assert one.send(TWO, CHAIN, [b"once"])
        await until(lambda: ("down", TWO) in cluster.heard[one].told)
        assert cluster.got[two] == [(1, b"once")]

    run(story)
