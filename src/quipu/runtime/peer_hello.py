"""The first words on a connection between two nodes: who is there, and do both know the secret?

    dialler                               acceptor
    HELLO  who I am, a nonce, a mac ->
                                    <-    HELLO  who I am, a nonce
    PROOF  mac of both hellos       ->
                                    <-    READY  mac of both hellos, the other way round
                                          (or REFUSED  why, at any point, by either side)

A mac is HMAC-SHA256 under peer.secret; the one who dials proves first, so that a stranger who
connects learns no mac to try secrets on.  The mac of the first hello tells a stranger from a node
by the first frame, before anything is answered; it could be a copy of an earlier one, so it is
PROOF, of a nonce made for this connection, that proves.  Of the secret and both hellos the keys
are made that frames after READY are authenticated with (peer_seal.py).

Not here: which of two processes with one id is believed (peers.py), sockets (peer_link.py).
"""

import hmac
from dataclasses import dataclass, field
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from quipu.model.errors import Kind, MalformedBytes, QuipuError
from quipu.model.ids import NodeId
from quipu.model.settings_types import Address
from quipu.runtime.peer_net import Identity

PROTOCOL_VERSION: Final = 2
HELLO_SIZE_MAX: Final = 1024  # of any frame before READY
NONCE_SIZE: Final = 32
_MAC_SIZE: Final = 32
_MAGIC: Final = b"QUIPU/peer"
# Magic, version, node, incarnation, nonce, port, flags.
_HEAD: Final = Struct(">10sHi16s32sHB")
_SIGNS: Final = 1  # a flag: frames are to have tags
_TEXT_SIZE_MAX: Final = 255
_REASON_SIZE_MAX: Final = 500
OTHER_SECRET: Final = "peer.secret is not the same on both nodes"  # noqa: S105 words about it


class Step(IntEnum):
    """The first byte of a frame before READY."""

    HELLO = 1
    PROOF = 2
    READY = 3
    REFUSED = 4


class Refused(QuipuError):
    """The two nodes must not talk to each other; both get to know why."""

    kind = Kind.INVALID


class RefusedThere(Refused):
    """The other side refused: there is nothing to tell it."""


class MetBefore(Refused):
    """The one who was dialled is connected already, or is this very process; `node_id` it is."""

    def __init__(self, message: str, node_id: NodeId) -> None:
        super().__init__(message)
        self.node_id = node_id


class Hello(NamedTuple):
    """What one side says about itself."""

    identity: Identity
    nonce: bytes
    address: Address | None  # where it can be reached, if it can
    signs: bool = True  # wants frames to have tags; they have none if neither side does

    def encode(self) -> bytes:
        """The frame's body; both sides' macs are made of these very bytes."""
        identity = self.identity
        host, port = self.address or Address("", 0)
        head = _HEAD.pack(_MAGIC, PROTOCOL_VERSION, identity.node_id,
                          identity.incarnation.bytes, self.nonce, port,
                          _SIGNS if self.signs else 0)
        return head + b"".join(map(_text, (identity.cluster_id, identity.name, host)))


def decode_hello(body: memoryview) -> Hello:
    """What a stranger said; raises `Refused` for another protocol, `MalformedBytes` for worse."""
    if bytes(body[: len(_MAGIC)]) != _MAGIC:
        raise MalformedBytes("not a node's hello")
    if len(body) < _HEAD.size + 3:
        raise MalformedBytes(f"a hello of {len(body)} bytes")
    _, version, node_id, incarnation, nonce, port, flags = _HEAD.unpack_from(body)
    if version != PROTOCOL_VERSION:
        raise Refused(f"the protocol between nodes has version {version} at one of the two and "
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
    """One side of the conversation: frames in, frames out; nothing here sends them."""

    mine: Hello
    secret: bytes = field(repr=False)
    is_dialler: bool
    theirs: Hello | None = None
    is_proved: bool = False  # the other side knows the secret
    _said: bytes = b""  # their hello as it came

    def first(self) -> bytes:
        """What the dialler opens with."""
        assert self.is_dialler
        hello = self.mine.encode()
        return bytes([Step.HELLO]) + hello + self._hello_mac(hello)

    def receive(self, frame: memoryview) -> bytes:
        """What to answer, if anything; raises `Refused` and `MalformedBytes`.

        A dialler that learns who is there may still leave before it has proved anything.  When
        `is_proved` has become true, a dialler is ready to send, and an acceptor still has to say
        `ready()`, or why not.
        """
        step = frame[0] if frame else 0
        body = frame[1:]
        if step == Step.REFUSED:
            words = bytes(body[:_REASON_SIZE_MAX]).decode(errors="replace")
            raise RefusedThere(f"it refuses: {words}")
        if step == Step.HELLO and self.theirs is None:
            return self._on_hello(body)
        if self.theirs is not None and not self.is_proved:
            if step == Step.READY and self.is_dialler:
                return self._on_mac(body)
            if step == Step.PROOF and not self.is_dialler:
                return self._on_mac(body)
        raise MalformedBytes(f"step {step} out of turn")

    def ready(self) -> bytes:
        """The acceptor's last word."""
        assert self.is_proved
        assert not self.is_dialler
        return bytes([Step.READY]) + self._mac(of_dialler=False)

    @property
    def keys(self) -> tuple[bytes, bytes] | None:
        """Of the frames that this side sends, and of those that it receives.

        None without a secret: a tag that anybody can make is worth nothing.  None if both sides
        do without, which nobody else can make them believe: the macs cover both hellos.
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
            return bytes([Step.PROOF]) + self._mac(of_dialler=True)
        hello = decode_hello(body)  # first: it tells which version the rest is of
        self._said = bytes(body[:-_MAC_SIZE])
        if not hmac.compare_digest(self._hello_mac(self._said), body[-_MAC_SIZE:]):
            raise Refused(OTHER_SECRET)
        self.theirs = hello
        check_cluster(self.mine.identity, hello.identity)
        return bytes([Step.HELLO]) + self.mine.encode()

    def _hello_mac(self, hello: bytes) -> bytes:
        return hmac.digest(self.secret, b"hello" + hello, "sha256")

    def _on_mac(self, body: memoryview) -> bytes:
        wanted = self._mac(of_dialler=not self.is_dialler)
        if not hmac.compare_digest(wanted, bytes(body[: _MAC_SIZE + 1])):
            raise Refused(OTHER_SECRET)
        self.is_proved = True
        return b""

    def _mac(self, *, of_dialler: bool) -> bytes:
        return self._keyed(b"dialler" if of_dialler else b"acceptor")

    def _keyed(self, label: bytes) -> bytes:
        """A mac of both hellos, for one use."""
        mine = self.mine.encode()
        both = (mine, self._said) if self.is_dialler else (self._said, mine)
        sizes = b"".join(len(each).to_bytes(2, "big") for each in both)
        return hmac.digest(self.secret, b"".join((label, sizes, *both)), "sha256")


def refusal(why: str) -> bytes:
    """The frame that tells the other side why there will be no conversation."""
    return bytes([Step.REFUSED]) + why.encode()[:_REASON_SIZE_MAX]


def check_cluster(mine: Identity, theirs: Identity) -> None:
    """Nodes that know their clusters must be of the same one."""
    if mine.cluster_id and theirs.cluster_id and mine.cluster_id != theirs.cluster_id:
        raise Refused(f"{theirs.name} belongs to cluster {theirs.cluster_id}, and {mine.name} "
                      f"to {mine.cluster_id}")


def _text(value: str) -> bytes:
    data = value.encode()
    assert len(data) <= _TEXT_SIZE_MAX, value
    return bytes([len(data)]) + data
