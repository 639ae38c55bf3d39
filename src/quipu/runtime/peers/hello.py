"""The handshake of a connection between two nodes: identities, and proof of the shared secret.

    dialler                               acceptor
    HELLO  identity, nonce, mac     ->
                                    <-    HELLO  identity, nonce
    PROOF  mac of both hellos       ->
                                    <-    READY  mac of both hellos, with another label
                                          (or REFUSED  reason, at any point, by either side)

A mac is an HMAC-SHA256 with peer.secret.  The dialler authenticates first, so that a stranger who
connects gets no mac to test secrets on.  The mac of the first hello distinguishes a node from a
stranger by the first frame, before the acceptor sends anything; it could be a replayed one, so only
PROOF, which covers the acceptor's nonce for this connection, authenticates.  The keys that sign
frames after READY are derived from the secret and both hellos (frame_mac.py).

Not here: which of two processes with one id is accepted (peers.py), sockets (link.py).
"""

import hmac
from dataclasses import dataclass, field
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from quipu.model.errors import ErrorKind, MalformedBytes, QuipuError
from quipu.model.ids import NodeId
from quipu.model.settings_types import Address
from quipu.runtime.peers.peer_net import Identity

PROTOCOL_VERSION: Final = 2
HELLO_SIZE_MAX: Final = 1024  # of any frame before READY
NONCE_SIZE: Final = 32
_MAC_SIZE: Final = 32
_MAGIC: Final = b"QUIPU/peer"
# Magic, version, node, incarnation, nonce, port, flags.
_HEAD: Final = Struct(">10sHi16s32sHB")
_SIGNS: Final = 1  # a flag: frames shall have tags
_TEXT_SIZE_MAX: Final = 255
_REASON_SIZE_MAX: Final = 500
OTHER_SECRET: Final = "peer.secret is not the same on both nodes"  # noqa: S105 not a secret


class HelloStep(IntEnum):
    """The first byte of a frame before READY."""

    HELLO = 1
    PROOF = 2
    READY = 3
    REFUSED = 4


class PeerRefused(QuipuError):
    """The two nodes must not connect; both are informed of the reason."""

    kind = ErrorKind.INVALID


class RefusedByPeer(PeerRefused):
    """The other side refused, and has sent the reason."""


class AlreadyConnected(PeerRefused):
    """The dialled node, `node_id`, is connected already or is this very process."""

    def __init__(self, message: str, node_id: NodeId) -> None:
        super().__init__(message)
        self.node_id = node_id


class Hello(NamedTuple):
    """The identity and address that one side sends."""

    identity: Identity
    nonce: bytes
    address: Address | None  # its advertised address, if it listens
    signs: bool = True  # requires tags on frames; they have none if neither side requires them

    def encode(self) -> bytes:
        """The frame's body; both sides compute macs over exactly these bytes."""
        identity = self.identity
        host, port = self.address or Address("", 0)
        head = _HEAD.pack(_MAGIC, PROTOCOL_VERSION, identity.node_id,
                          identity.incarnation.bytes, self.nonce, port,
                          _SIGNS if self.signs else 0)
        return head + b"".join(map(_text, (identity.cluster_id, identity.name, host)))


def decode_hello(body: memoryview) -> Hello:
    """The hello in a frame; raises `PeerRefused` for another protocol, else `MalformedBytes`."""
    if bytes(body[: len(_MAGIC)]) != _MAGIC:
        raise MalformedBytes("not a node's hello")
    if len(body) < _HEAD.size + 3:
        raise MalformedBytes(f"a hello of {len(body)} bytes")
    _, version, node_id, incarnation, nonce, port, flags = _HEAD.unpack_from(body)
    if version != PROTOCOL_VERSION:
        raise PeerRefused(f"the protocol between nodes has version {version} at one of the two and "
                      f"{PROTOCOL_VERSION} at the other")
    texts = []
    position = _HEAD.size
    for _ in range(3):
        size = body[position] if position < len(body) else len(body)
        text = bytes(body[position + 1 : position + 1 + size])
        position += 1 + size
        if position > len(body):
            raise MalformedBytes("a hello that is cut short")
        texts.append(text)
    try:
        cluster_id, name, host = (text.decode() for text in texts)
    except UnicodeDecodeError:
        raise MalformedBytes("a hello that is not UTF-8") from None
    identity = Identity(NodeId(node_id), name, UUID(bytes=incarnation), cluster_id)
    if node_id < 0 or not f"{name}{host}{cluster_id}".isprintable():
        raise MalformedBytes(f"a hello of {identity!r}")
    address = Address(host, port) if host and port else None
    return Hello(identity, nonce, address, bool(flags & _SIGNS))


@dataclass(slots=True, kw_only=True)
class Handshake:
    """One side of the handshake: takes received frames, returns frames to send; does no I/O."""

    mine: Hello
    secret: bytes = field(repr=False)
    is_dialler: bool
    theirs: Hello | None = None
    is_proved: bool = False  # the other side has authenticated
    _said: bytes = b""  # their hello as it was received

    def first(self) -> bytes:
        """The first frame of the dialler."""
        assert self.is_dialler
        hello = self.mine.encode()
        return bytes([HelloStep.HELLO]) + hello + self._hello_mac(hello)

    def receive(self, frame: memoryview) -> bytes:
        """The frame to send next, or none; raises `PeerRefused` and `MalformedBytes`.

        A dialler that has received the acceptor's hello may still close before it sends its proof.
        Once `is_proved` is True, a dialler may send messages, and an acceptor still has to send
        `ready()` or a refusal.
        """
        step = frame[0] if frame else 0
        body = frame[1:]
        if step == HelloStep.REFUSED:
            reason = bytes(body[:_REASON_SIZE_MAX]).decode(errors="replace")
            raise RefusedByPeer(f"it refuses: {reason}")
        if step == HelloStep.HELLO and self.theirs is None:
            return self._on_hello(body)
        if self.theirs is not None and not self.is_proved:
            if step == HelloStep.READY and self.is_dialler:
                return self._on_mac(body)
            if step == HelloStep.PROOF and not self.is_dialler:
                return self._on_mac(body)
        raise MalformedBytes(f"step {step} out of turn")

    def ready(self) -> bytes:
        """The last frame of the acceptor."""
        assert self.is_proved
        assert not self.is_dialler
        return bytes([HelloStep.READY]) + self._mac(of_dialler=False)

    @property
    def keys(self) -> tuple[bytes, bytes] | None:
        """The keys for the frames that this side sends, and for those that it receives.

        None without a secret: tags that anyone can make are useless.  None if neither side requires
        tags; an attacker cannot pretend so, because the macs cover both hellos.
        """
        assert self.is_proved
        assert self.theirs is not None
        if not self.secret or not (self.mine.signs or self.theirs.signs):
            return None
        dialler, acceptor = self._keyed(b"frames of dialler"), self._keyed(b"frames of acceptor")
        return (dialler, acceptor) if self.is_dialler else (acceptor, dialler)

    def _on_hello(self, body: memoryview) -> bytes:
        if self.is_dialler:
            self._said = bytes(body)
            self.theirs = hello = decode_hello(body)
            check_cluster(self.mine.identity, hello.identity)
            return bytes([HelloStep.PROOF]) + self._mac(of_dialler=True)
        hello = decode_hello(body)  # first, because it checks the version of the rest
        self._said = bytes(body[:-_MAC_SIZE])
        if not hmac.compare_digest(self._hello_mac(self._said), body[-_MAC_SIZE:]):
            raise PeerRefused(OTHER_SECRET)
        self.theirs = hello
        check_cluster(self.mine.identity, hello.identity)
        return bytes([HelloStep.HELLO]) + self.mine.encode()

    def _hello_mac(self, hello: bytes) -> bytes:
        return hmac.digest(self.secret, b"hello" + hello, "sha256")

    def _on_mac(self, body: memoryview) -> bytes:
        wanted = self._mac(of_dialler=not self.is_dialler)
        if not hmac.compare_digest(wanted, bytes(body[: _MAC_SIZE + 1])):
            raise PeerRefused(OTHER_SECRET)
        self.is_proved = True
        return b""

    def _mac(self, *, of_dialler: bool) -> bytes:
        return self._keyed(b"dialler" if of_dialler else b"acceptor")

    def _keyed(self, label: bytes) -> bytes:
        """A mac of both hellos, for the use that `label` names."""
        mine = self.mine.encode()
        both = (mine, self._said) if self.is_dialler else (self._said, mine)
        sizes = b"".join(len(each).to_bytes(2, "big") for each in both)
        return hmac.digest(self.secret, b"".join((label, sizes, *both)), "sha256")


def refusal(why: str) -> bytes:
    """The frame that sends the other side the reason of a refusal."""
    return bytes([HelloStep.REFUSED]) + why.encode()[:_REASON_SIZE_MAX]


def check_cluster(mine: Identity, theirs: Identity) -> None:
    """Raise `PeerRefused` if both nodes know their cluster and it is not the same."""
    if mine.cluster_id and theirs.cluster_id and mine.cluster_id != theirs.cluster_id:
        raise PeerRefused(f"{theirs.name} belongs to cluster {theirs.cluster_id}, and {mine.name} "
                      f"to {mine.cluster_id}")


def _text(value: str) -> bytes:
    data = value.encode()
    assert len(data) <= _TEXT_SIZE_MAX, value
    return bytes([len(data)]) + data
