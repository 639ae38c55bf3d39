"""One connection between two nodes: first the handshake, then messages, with heartbeats.

    frame   size i32 | kind u8 | body | tag    kind 0: between the two links themselves
                                               (PING, PONG, CLUSTER id, PARTED reason)
                                               tag: see frame_mac.py; only with a peer.secret

A dialled link carries this node's messages to the peer; an accepted one carries the peer's messages
to this node.  Replies to calls are sent on the link of the call, so both links read and write.

Invariants
    runtime.K1  before the peer has authenticated, only handshake frames of at most HELLO_SIZE_MAX
                are read, and the handshake takes at most SILENT_TICKS_MAX ticks
    runtime.K2  a silent link is sent a PING, and closed after SILENT_TICKS_MAX ticks without a
                frame.  Ticks are counted, not seconds: a node whose own event loop was blocked does
                not close its links
    runtime.K3  a message is accepted if at most PEER_BACKLOG_MAX bytes wait, or SMALL_ROOM more if
                it is small, so that heartbeats are sent while large messages wait
    runtime.K4  a frame after the handshake is handled only if it is the next one that the peer
                sent, unaltered; any other frame closes the link

Not here: the set of links (peers.py), what messages mean.
"""

import asyncio
import logging
from struct import Struct
from typing import Final, Protocol

from quipu.model.errors import MalformedBytes, QuipuError
from quipu.model.ids import NO_NODE, ZERO_UUID, NodeId
from quipu.model.settings_types import Address
from quipu.runtime.net.connection import Buffer, Connection
from quipu.runtime.peers.frame_mac import TAG_SIZE, FrameMac
from quipu.runtime.peers.hello import (
    HELLO_SIZE_MAX,
    Handshake,
    Hello,
    PeerRefused,
    RefusedByPeer,
    check_cluster,
    refusal,
)
from quipu.runtime.peers.peer_net import PEER_BACKLOG_MAX, Identity, PeerKind, PeerUnavailable

SILENT_TICKS_MAX: Final = 4
SMALL_SIZE_MAX: Final = 64 << 10
SMALL_ROOM: Final = 2 << 20
JOIN_SIZE_MAX: Final = 4 << 10  # a frame up to this size is joined into one buffer
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


class LinkOwner(Protocol):
    """The callbacks of a link; implemented by `TcpPeers`."""

    identity: Identity

    def admit(self, link: "Link") -> None:
        """The peer has sent its identity; raise `PeerRefused` to refuse it.

        Called on the dialling side before it authenticates, so that the other side does not open a
        link that is closed at once, and on both sides when the peer has authenticated.
        """
        ...

    def vouched(self, link: "Link") -> None:
        """The peer that dialled sent a hello with a valid mac: new, or a copy of an old one."""
        ...

    def opened(self, link: "Link") -> None:
        """The handshake is complete: messages can be sent."""
        ...

    def received(self, link: "Link", kind: int, body: memoryview) -> None:
        """A message has arrived; the body is borrowed."""
        ...

    def drained(self, link: "Link") -> None:
        """Messages are accepted again after one was refused for lack of room."""
        ...

    def lost(self, link: "Link", why: QuipuError) -> None:
        """The link is closed; called once, also for a link that was never open."""
        ...


class Link:
    """The handler of one connection to or from another node."""

    __slots__ = (
        "_handshake", "_own_size_max", "_owner", "_queued_size", "_received", "_refused", "_sent",
        "_silent_ticks", "_why", "address", "connection", "expected", "has_hung_up", "is_dialled",
        "is_open", "peer",
    )

    def __init__(
        self, owner: LinkOwner, connection: Connection, mine: Hello, secret: bytes, *,
        is_dialled: bool, expected: NodeId | None = None,
    ) -> None:
        self._owner = owner
        self.connection = connection
        self.is_dialled = is_dialled
        self.expected = expected  # the node that was dialled, if it is known
        self.is_open = False
        self.peer = NOBODY  # the other node; authenticated once the link is open
        self.address: Address | None = None  # the peer's advertised address
        self._own_size_max = connection.frame_size_max
        connection.frame_size_max = HELLO_SIZE_MAX  # runtime.K1
        self._handshake = Handshake(mine=mine, secret=secret, is_dialler=is_dialled)
        self._sent: FrameMac | None = None  # signs frames after the handshake (runtime.K4)
        self._received: FrameMac | None = None  # verifies received ones
        self._queued_size = 0  # bytes passed to the connection so far
        self._refused = False  # a message was refused for lack of room
        self._silent_ticks = 0
        self._why: QuipuError | None = None  # why this side closed it
        self.has_hung_up = True  # once it is lost: whether the other side closed it

    def greet(self) -> None:
        """Send the first hello; called on the dialling side once the connection has started."""
        self._send_hello(self._handshake.first())

    @property
    def remote(self) -> Address:
        """The network address of the other end of the connection."""
        return Address(self.connection.peer_host, self.connection.peer_port)

    @property
    def caller(self) -> str:
        """The node that dialled, for log lines: its name, if it was sent, and its host."""
        host, theirs = self.connection.peer_host, self._handshake.theirs
        return host if theirs is None else f"{theirs.identity.name} ({host})"

    @property
    def was_left(self) -> bool:
        """Whether the other side closed the link without sending a reason."""
        return self._why is None

    @property
    def backlog(self) -> int:
        """Bytes that were accepted and have not been sent yet."""
        return self._queued_size - self.connection.sent_size

    # -- sending

    def send(self, kind: int, buffers: list[Buffer], *, at_once: bool = False) -> bool:
        """Send one message if there is room for it (runtime.K3)."""
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
        # A connection sends buffers in the order of the calls (runtime.P1).
        send = self.connection.send_lent if at_once else self.connection.send
        send(self._frame(_HEAD.pack(size, kind), buffers, size))
        return True

    def _frame(self, head: bytes, buffers: list[Buffer], size: int) -> list[Buffer]:
        """The buffers of one frame with its tag (runtime.K4); it must be the next one sent."""
        mac = self._sent
        if mac is None:
            return [head, *buffers]
        if size <= JOIN_SIZE_MAX:  # signing and sending many small buffers costs more than a copy
            body = b"".join(buffers)
            return [head + body + mac.tag(head, (body,))]
        return [head, *buffers, mac.tag(head, buffers)]

    def send_reply(self, buffers: list[Buffer]) -> None:
        """Reply to a call, also above the backlog limit: the number of calls is limited."""
        if self.is_open and not self.connection.closed:
            self._send_anyway(PeerKind.REPLY, buffers)

    def _refuse(self) -> None:
        if not self._refused:
            self._refused = True
            # If all queued bytes are sent at the end of this turn, the connection does not notify.
            asyncio.get_running_loop().call_soon(self._look_for_room)

    def _look_for_room(self) -> None:
        if self._refused and self.is_open and self.backlog <= PEER_BACKLOG_MAX:
            self.drained()

    def _control(self, *parts: bytes) -> None:
        self._send_anyway(PeerKind.CONTROL, list(parts))

    def _send_anyway(self, kind: int, buffers: list[Buffer]) -> None:
        """Send one message, regardless of the backlog."""
        size = (1 if self._sent is None else 1 + TAG_SIZE) + sum(map(len, buffers))
        self._queued_size += 4 + size
        self.connection.send(self._frame(_HEAD.pack(size, kind), buffers, size))

    def _send_hello(self, frame: bytes) -> None:
        if frame:
            self._queued_size += 4 + len(frame)
            self.connection.send([_SIZE.pack(len(frame)), frame])

    # -- heartbeats

    def tick(self) -> None:
        """Send PING to a silent peer, close the link if it stays silent (runtime.K2)."""
        self._silent_ticks += 1
        if self._silent_ticks > SILENT_TICKS_MAX:
            self.close("the peer is silent" if self.is_open else "the handshake took too long")
        elif self._silent_ticks > 1 and self.is_open:
            self._control(bytes([PING]))

    def probe(self) -> None:
        """Send PING now; `tick` closes the link soon if there is no response."""
        self._silent_ticks = max(self._silent_ticks, SILENT_TICKS_MAX - 1)
        self._control(bytes([PING]))

    def announce_cluster(self) -> None:
        """Send the peer the cluster id of this node, which has just become known."""
        self._control(bytes([CLUSTER]), self._owner.identity.cluster_id.encode())
        try:
            check_cluster(self._owner.identity, self.peer)
        except PeerRefused as error:
            self._refuse_peer(error)

    # -- from the connection

    def frame_received(self, frame: memoryview) -> None:
        try:
            if not self.is_open:
                self._on_hello_frame(frame)
                return
            mac = self._received
            if mac is not None:
                if not mac.verifies(frame):  # runtime.K4
                    raise MalformedBytes("a frame that does not verify as the peer's next one")
                frame = frame[:-TAG_SIZE]
            self._silent_ticks = 0
            if frame and frame[0] != _CONTROL:
                self._owner.received(self, frame[0], frame[1:])
            else:
                self._on_control(frame[1:])
        except PeerRefused as error:
            self._refuse_peer(error)
        except MalformedBytes as error:
            self.close(f"malformed frame: {error}")
        except Exception:  # noqa: BLE001 a bug in one message must not end the node
            _log.exception("a message of %s failed", self.remote)
            self.close("a bug; see the log")

    def drained(self) -> None:
        if self._refused:
            self._refused = False
            self._owner.drained(self)

    def connection_lost(self) -> None:
        self.is_open = False
        self._owner.lost(self, self._why or PeerUnavailable("the connection was closed"))

    def close(self, why: str | QuipuError, *, after_sending: bool = False) -> None:
        """Close the link; `lost` of the owner is called before this returns."""
        if not self.connection.closed:
            self._why = why if isinstance(why, QuipuError) else PeerUnavailable(why)
            self.has_hung_up = False
            self.connection.close(after_sending=after_sending)

    # -- handshake and control frames

    def _on_hello_frame(self, frame: memoryview) -> None:
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
        self._begin_macs()
        self.connection.frame_size_max = self._own_size_max
        self.is_open = True
        self._silent_ticks = 0
        self._owner.opened(self)
        if self.is_open and handshake.mine.identity.cluster_id != self._owner.identity.cluster_id:
            self.announce_cluster()  # it became known during the handshake

    def _begin_macs(self) -> None:
        """Sign and verify every frame from now on (runtime.K4)."""
        keys = self._handshake.keys
        if keys is not None:
            self._sent, self._received = FrameMac(keys[0]), FrameMac(keys[1])

    def _on_control(self, body: memoryview) -> None:
        control = body[0] if body else 0
        if control == PING:
            self._control(bytes([PONG]))
        elif control == CLUSTER:
            if len(body) > 1 + _CLUSTER_ID_SIZE_MAX:
                raise MalformedBytes(f"a cluster id of {len(body) - 1} bytes")
            cluster_id = bytes(body[1:]).decode(errors="replace")
            self.peer = self.peer._replace(cluster_id=cluster_id)
            check_cluster(self._owner.identity, self.peer)
        elif control == PARTED:
            raise RefusedByPeer(bytes(body[1:]).decode(errors="replace"))
        # PONG needs no action; unknown numbers are those of later versions

    def _refuse_peer(self, error: PeerRefused) -> None:
        """Send the other side the reason, and close the link."""
        if isinstance(error, RefusedByPeer):
            self.close(error)
            return
        if self.is_open or (self.is_dialled and self._handshake.is_proved):
            if not self.is_open:
                self._begin_macs()
            self._control(bytes([PARTED]), str(error).encode())  # the peer has opened the link
        else:
            self._send_hello(refusal(str(error)))
        self.close(error, after_sending=True)
