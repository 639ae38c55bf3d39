"""The handshake between nodes, as bytes: invalid bytes only close the connection."""

from contextlib import suppress
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quipu.model.errors import MalformedBytes
from quipu.model.ids import NodeId
from quipu.model.settings_types import Address
from quipu.runtime.peers.hello import (
    HELLO_SIZE_MAX,
    NONCE_SIZE,
    Handshake,
    Hello,
    PeerRefused,
    RefusedByPeer,
    decode_hello,
    refusal,
)
from quipu.runtime.peers.peer_net import Identity

ADDRESS = Address("a-1.example", 9094)


def hello(node_id: int, *, cluster_id: str = "", address: Address | None = ADDRESS) -> Hello:
    identity = Identity(NodeId(node_id), f"a-{node_id}", UUID(int=node_id), cluster_id)
    return Hello(identity, bytes([node_id]) * NONCE_SIZE, address)


def sides(*, secrets: tuple[bytes, bytes] = (b"s", b"s")) -> tuple[Handshake, Handshake]:
    return (Handshake(mine=hello(1), secret=secrets[0], is_dialler=True),
            Handshake(mine=hello(2), secret=secrets[1], is_dialler=False))


def test_two_that_know_the_secret_believe_each_other() -> None:
    """V5: each proves that it knows the secret, to the other's nonce."""
    dialler, acceptor = sides()
    proof = dialler.receive(memoryview(acceptor.receive(memoryview(dialler.first()))))
    assert not dialler.is_proved
    assert acceptor.receive(memoryview(proof)) == b""
    assert acceptor.is_proved
    assert dialler.receive(memoryview(acceptor.ready())) == b""
    assert dialler.is_proved
    assert dialler.theirs == acceptor.mine
    assert acceptor.theirs == dialler.mine


def test_a_proof_is_worth_nothing_in_another_conversation() -> None:
    """V5: what was overheard cannot be said again, nor said back."""
    dialler, acceptor = sides()
    first = dialler.first()
    proof = dialler.receive(memoryview(acceptor.receive(memoryview(first))))
    later = Handshake(mine=hello(2)._replace(nonce=bytes(NONCE_SIZE)), secret=b"s",
                      is_dialler=False)
    later.receive(memoryview(first))
    with pytest.raises(PeerRefused, match=r"peer\.secret"):
        later.receive(memoryview(proof))
    with pytest.raises(PeerRefused, match=r"peer\.secret"):
        dialler.receive(memoryview(b"\x03" + proof[1:]))  # its own mac as the acceptor's


@pytest.mark.parametrize("mac", [b"", b"x", bytes(32), bytes(33)], ids=len)
def test_a_wrong_mac_is_refused(mac: bytes) -> None:
    """V5: of any length."""
    dialler, acceptor = sides()
    acceptor.receive(memoryview(dialler.first()))
    with pytest.raises(PeerRefused):
        acceptor.receive(memoryview(b"\x02" + mac))
    assert not acceptor.is_proved


def test_a_refusal_is_told() -> None:
    """V5: the other side's reason reaches the log of this one."""
    dialler, _ = sides()
    with pytest.raises(RefusedByPeer, match="it refuses: because"):
        dialler.receive(memoryview(refusal("because")))
    assert len(refusal("ä" * 1000)) <= HELLO_SIZE_MAX


@given(
    node_id=st.integers(0, 2**31 - 1), cluster_id=st.sampled_from(["", "x", "ä" * 100]),
    address=st.sampled_from([None, Address("h", 1), Address("h" * 253, 65_535)]))
def test_a_hello_is_read_as_it_was_said(
    node_id: int, cluster_id: str, address: Address | None
) -> None:
    """V5: both directions agree."""
    identity = Identity(NodeId(node_id), "a-1", UUID(int=7), cluster_id)
    said = Hello(identity, bytes(NONCE_SIZE), address)
    assert decode_hello(memoryview(said.encode())) == said
    assert len(said.encode()) < HELLO_SIZE_MAX


@given(data=st.data())
def test_a_hello_that_is_damaged_is_read_as_one_or_refused(data: st.DataObject) -> None:
    """K8: whatever a stranger sends raises one of two errors, or is a hello."""
    said = bytearray(hello(1, cluster_id="c").encode())
    for _ in range(data.draw(st.integers(1, 3))):
        said[data.draw(st.integers(0, len(said) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(said)))
    try:
        found = decode_hello(memoryview(bytes(said[:cut])))
    except (MalformedBytes, PeerRefused):
        return
    assert found.identity.node_id >= 0


@given(frame=st.binary(max_size=200))
def test_frames_out_of_turn_end_the_talk(frame: bytes) -> None:
    """K8: no frame makes a side believe that the other one has proved anything."""
    for side in sides():
        with suppress(MalformedBytes, PeerRefused):
            side.receive(memoryview(frame))
        assert not side.is_proved
