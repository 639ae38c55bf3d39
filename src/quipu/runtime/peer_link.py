"""One connection between two nodes: first the hello, then messages, and signs of life throughout.

    frame   size i32 | kind u8 | body | tag    kind 0: between the two links
                                               (PING, PONG, CLUSTER id, PARTED why), not handed on
                                               tag: see peer_seal.py; only with a peer.secret

A link that was dialled carries this node's messages to the peer; one that was accepted carries the
peer's to us.  Answers to calls go back on the link of the call, so both read and write.

Invariants
    L1  nothing but a hello is read before the peer has proved itself, no frame before that is
        larger than HELLO_SIZE_MAX, and all of it is over within SILENT_TICKS_MAX ticks
    L2  a link that is silent is asked, and closed after SILENT_TICKS_MAX ticks without a word.
        Ticks are counted, not seconds: a node whose own loop stood still blames nobody
    L3  at most PEER_BACKLOG_MAX bytes wait when a message is taken, SMALL_ROOM more if it is a
        small one, so that heartbeats pass while bulk waits
    L4  a frame after the hello is looked at only if it is the very next one that the peer sent,
        unaltered; any other closes the link

Not here: which links there are (peers.py), what messages mean.
"""

import asyncio
import logging
from struct import Struct
from typing import Final, Protocol

from quipu.model.errors import MalformedBytes, QuipuError
from quipu.model.ids import NO_NODE, ZERO_UUID, NodeId
from quipu.model.settings_types import Address
from quipu.runtime.connection import Buffer, Connection
from quipu.runtime.peer_hello import (
    HELLO_SIZE_MAX,
    Handshake,
    Hello,
    Refused,
    RefusedThere,
    check_cluster,
    refusal,
)
from quipu.runtime.peer_net import PEER_BACKLOG_MAX, Identity, PeerKind, PeerUnavailable
from quipu.runtime.peer_seal import TAG_SIZE, Seal

SILENT_TICKS_MAX: Final = 4
SMALL_SIZE_MAX: Final = 64 << 10
SMALL_ROOM: Final = 2 << 20
JOIN_SIZE_MAX: Final = 4 << 10  # a frame up to this size is made one buffer
PING: Final = 1
PONG: Final = 2
CLUSTER: Final = 3
PARTED: Final = 4
_CLUSTER_ID_SIZE_MAX: Final = 255

NOBODY: Final = Identity(NO_NODE, "", ZERO_UUID)

_CONTROL: Final = int(PeerKind.CONTROL)
_HEAD: Final = Struct(">iB")
_SIZE: Final = Struct(">i")
_log = logging.getLogger(__name__)


class Owner(Protocol):
    """What a link tells; implemented by `Peers`."""

    identity: Identity

    def admit(self, link: "Link") -> None:
        """The peer has said who it is; raises `Refused` if it is not wanted.

        Asked of a dialler before it proves itself, so that the other side opens no link in vain,
        and of both when the peer has.
        """
        ...

    def vouched(self, link: "Link") -> None:
        """The one who dialled knows the secret, or has heard a hello of one who does."""
        ...

    def opened(self, link: "Link") -> None:
        """Messages can be sent."""
        ...

    def received(self, link: "Link", kind: int, body: memoryview) -> None:
        """A message has come; the body is borrowed."""
        ...

    def drained(self, link: "Link") -> None:
        """There is room again after a message was refused."""
        ...

    def lost(self, link: "Link", why: QuipuError) -> None:
        """The link is closed; called once, also for one that was never open."""
        ...


class Link:
    """The handler of one connection to or from another node."""

    __slots__ = (
        "_handshake", "_own_size_max", "_owner", "_queued_size", "_received", "_refused", "_sent",
        "_silent_ticks", "_why", "address", "connection", "expected", "has_hung_up", "is_dialled",
        "is_open", "peer",
    )

    def __init__(
        self, owner: Owner, connection: Connection, mine: Hello, secret: bytes, *,
        is_dialled: bool, expected: NodeId | None = None,
    ) -> None:
        self._owner = owner
        self.connection = connection
        self.is_dialled = is_dialled
        self.expected = expected  # who was dialled, if that is known
        self.is_open = False
        self.peer = NOBODY  # who is at the other end; proved once the link is open
        self.address: Address | None = None  # where the peer says that it is
        self._own_size_max = connection.frame_size_max
        connection.frame_size_max = HELLO_SIZE_MAX  # L1
        self._handshake = Handshake(mine=mine, secret=secret, is_dialler=is_dialled)
        self._sent: Seal | None = None  # of the frames that leave, once the hello is over (L4)
        self._received: Seal | None = None  # of those that come
        self._queued_size = 0  # bytes given to the connection so far
        self._refused = False  # a message was refused for want of room
        self._silent_ticks = 0
        self._why: QuipuError | None = None  # it was closed here
        self.has_hung_up = True  # when it is lost: did the other side close it?

    def greet(self) -> None:
        """Open the conversation; for the one who dialled, once the connection has started."""
        self._send_hello(self._handshake.first())

    @property
    def remote(self) -> Address:
        """The other end of the connection."""
        return Address(self.connection.peer_host, self.connection.peer_port)

    @property
    def caller(self) -> str:
        """Who dialled, as far as that was said; the port would tell nothing."""
        host, theirs = self.connection.peer_host, self._handshake.theirs
        return host if theirs is None else f"{theirs.identity.name} ({host})"

    @property
    def was_left(self) -> bool:
        """Was it closed by the other side, without a word of why?"""
        return self._why is None

    @property
    def backlog(self) -> int:
        """Bytes that were taken and have not left yet."""
        return self._queued_size - self.connection.sent_size

    # -- sending

    def send(self, kind: int, buffers: list[Buffer], *, at_once: bool = False) -> bool:
        """Send one message if there is room for it (L3)."""
        size = 1 if self._sent is None else 1 + TAG_SIZE
        for buffer in buffers:
            size += len(buffer)
        assert size <= self._own_size_max, f"a message of {size} bytes"
        backlog = self._queued_size - self.connection.sent_size
        if backlog > PEER_BACKLOG_MAX and (
            size > SMALL_SIZE_MAX or backlog > PEER_BACKLOG_MAX + SMALL_ROOM
        ):
            self._refuse()
            return False
        self._queued_size += 4 + size
        send = self.connection.send_lent if at_once else self.connection.send
        send(self._frame(_HEAD.pack(size, kind), buffers, size))
        return True

    def _frame(self, head: bytes, buffers: list[Buffer], size: int) -> list[Buffer]:
        """The buffers of one frame, its tag among them (L4); it must be sent next."""
        seal = self._sent
        if seal is None:
            return [head, *buffers]
        if size <= JOIN_SIZE_MAX:  # many small ones cost more, to sign and to send, than a copy
            body = b"".join(buffers)
            return [head + body + seal.tag(head, (body,))]
        return [head, *buffers, seal.tag(head, buffers)]

    def send_reply(self, buffers: list[Buffer]) -> None:
        """Answer a call; calls are counted, so their answers may pass the limit."""
        if self.is_open and not self.connection.closed:
            self._send_anyway(PeerKind.REPLY, buffers)

    def _refuse(self) -> None:
        if not self._refused:
            self._refused = True
            # What is queued leaves at the end of this turn; if all of it does, nobody tells.
            asyncio.get_running_loop().call_soon(self._look_for_room)

    def _look_for_room(self) -> None:
        if self._refused and self.is_open and self.backlog <= PEER_BACKLOG_MAX:
            self.drained()

    def _control(self, *parts: bytes) -> None:
        self._send_anyway(PeerKind.CONTROL, list(parts))

    def _send_anyway(self, kind: int, buffers: list[Buffer]) -> None:
        """Send one message, whatever waits."""
        size = (1 if self._sent is None else 1 + TAG_SIZE) + sum(map(len, buffers))
        self._queued_size += 4 + size
        self.connection.send(self._frame(_HEAD.pack(size, kind), buffers, size))

    def _send_hello(self, frame: bytes) -> None:
        if frame:
            self._queued_size += 4 + len(frame)
            self.connection.send([_SIZE.pack(len(frame)), frame])

    # -- signs of life

    def tick(self) -> None:
        """Called in regular steps: ask a silent peer, and give up one that stays silent (L2)."""
        self._silent_ticks += 1
        if self._silent_ticks > SILENT_TICKS_MAX:
            self.close("the peer is silent" if self.is_open else "no hello came")
        elif self._silent_ticks > 1 and self.is_open:
            self._control(bytes([PING]))

    def probe(self) -> None:
        """Ask for a sign of life out of turn; `tick` closes a link that gives none."""
        self._silent_ticks = max(self._silent_ticks, SILENT_TICKS_MAX - 1)
        self._control(bytes([PING]))

    def tell_cluster(self) -> None:
        """This node has got to know its cluster."""
        self._control(bytes([CLUSTER]), self._owner.identity.cluster_id.encode())
        try:
            check_cluster(self._owner.identity, self.peer)
        except Refused as error:
            self._part(error)

    # -- from the connection

    def frame_received(self, frame: memoryview) -> None:
        try:
            if not self.is_open:
                self._hear_hello(frame)
                return
            seal = self._received
            if seal is not None:
                if not seal.opens(frame):
                    raise MalformedBytes("a frame that is not the next one of the peer")  # L4
                frame = frame[:-TAG_SIZE]
            self._silent_ticks = 0
            if frame and frame[0] != _CONTROL:
                self._owner.received(self, frame[0], frame[1:])
            else:
                self._hear_control(frame[1:])
        except Refused as error:
            self._part(error)
        except MalformedBytes as error:
            self.close(f"nonsense came: {error}")
        except Exception:  # noqa: BLE001 a bug in one message must not end the node
            _log.exception("a message of %s failed", self.remote)
            self.close("a bug; the log has the details")

    def drained(self) -> None:
        if self._refused:
            self._refused = False
            self._owner.drained(self)

    def connection_lost(self) -> None:
        self.is_open = False
        self._owner.lost(self, self._why or PeerUnavailable("the connection was closed"))

    def close(self, why: str | QuipuError, *, after_sending: bool = False) -> None:
        """End the link; `lost` is called before this returns."""
        if not self.connection.closed:
            self._why = why if isinstance(why, QuipuError) else PeerUnavailable(why)
            self.has_hung_up = False
            self.connection.close(after_sending=after_sending)

    # -- the conversation between the links

    def _hear_hello(self, frame: memoryview) -> None:
        handshake = self._handshake
        answer = handshake.receive(frame)
        theirs = handshake.theirs
        assert theirs is not None
        if not self.is_dialled:
            self._owner.vouched(self)
        if self.is_dialled or handshake.is_proved:
            self.peer, self.address = theirs.identity, theirs.address
            self._owner.admit(self)
        self._send_hello(answer)
        if not handshake.is_proved:
            return
        if not self.is_dialled:
            self._send_hello(handshake.ready())
        self._begin_seals()
        self.connection.frame_size_max = self._own_size_max
        self.is_open = True
        self._silent_ticks = 0
        self._owner.opened(self)
        if self.is_open and handshake.mine.identity.cluster_id != self._owner.identity.cluster_id:
            self.tell_cluster()  # it became known while the two said hello

    def _begin_seals(self) -> None:
        """From now on every frame has its tag (L4)."""
        keys = self._handshake.keys
        if keys is not None:
            self._sent, self._received = Seal(keys[0]), Seal(keys[1])

    def _hear_control(self, body: memoryview) -> None:
        word = body[0] if body else 0
        if word == PING:
            self._control(bytes([PONG]))
        elif word == CLUSTER:
            if len(body) > 1 + _CLUSTER_ID_SIZE_MAX:
                raise MalformedBytes(f"a cluster id of {len(body) - 1} bytes")
            cluster_id = bytes(body[1:]).decode(errors="replace")
            self.peer = self.peer._replace(cluster_id=cluster_id)
            check_cluster(self._owner.identity, self.peer)
        elif word == PARTED:
            raise RefusedThere(bytes(body[1:]).decode(errors="replace"))
        # PONG has done its work by coming; other words are those of later versions

    def _part(self, error: Refused) -> None:
        """Tell the other side why, and close."""
        if isinstance(error, RefusedThere):
            self.close(error)
            return
        if self.is_open or (self.is_dialled and self._handshake.is_proved):
            if not self.is_open:
                self._begin_seals()
            self._control(bytes([PARTED]), str(error).encode())  # there it is open
        else:
            self._send_hello(refusal(str(error)))
        self.close(error, after_sending=True)
