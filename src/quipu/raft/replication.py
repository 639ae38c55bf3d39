"""Who is sent what, and when: a leader's followers and observers.

Nothing is sent when it is proposed, but when `flush` is called, at the end of a turn: so what was
proposed in one turn goes out in one message.

A refused message, or silence, is set right by heartbeats: an answered one means that the way is
open, so whatever was waited for is sent again (P2).
"""

from typing import TYPE_CHECKING

from quipu.model.ids import NodeId, RaftIndex
from quipu.raft.image import Pieces, join_items
from quipu.raft.messages import (
    NO_ROUND,
    Append,
    AppendReply,
    Entry,
    Heartbeat,
    HeartbeatReply,
    Image,
    InstallReply,
)
from quipu.raft.progress import Flow, Progress
from quipu.raft.settings import OBSERVER_PATIENCE, OBSERVERS_MAX

if TYPE_CHECKING:
    from quipu.raft.core import Raft


class Replication:
    """The leader's knowledge of everyone else."""

    def __init__(self, raft: "Raft") -> None:
        self.peers: dict[NodeId, Progress] = {}
        self._raft = raft
        self._round = 0  # of the last heartbeats
        self._image: tuple[Image, bytes] | None = None  # the newest, while someone is sent it
        self.adjust()

    def adjust(self) -> None:
        """See to it that every voter is sent to.  Who was one observes, and so learns of it."""
        for voter in self._raft.configuration.voters:
            self.add(voter)

    def add(self, node_id: NodeId) -> None:
        """Send to `node_id` from now on, if there is room for one more."""
        known = self.peers.get(node_id)
        if known is not None:
            known.heard_ms = self._raft.now_ms
            known.is_waiting = False
        elif node_id != self._raft.node_id and len(self.peers) < OBSERVERS_MAX:
            self.peers[node_id] = Progress(
                next=RaftIndex(self._raft.log.last_index + 1), heard_ms=self._raft.now_ms)

    def drop_silent(self) -> None:
        """Let observers go that are silent."""
        patience_ms = OBSERVER_PATIENCE * self._raft.timing.election_timeout_ms
        voters = self._raft.configuration.voters
        for node_id, progress in list(self.peers.items()):
            if node_id not in voters and self._raft.now_ms - progress.heard_ms > patience_ms:
                del self.peers[node_id]
        if all(progress.pieces is None for progress in self.peers.values()):
            self._image = None

    def heard_lately(self) -> list[NodeId]:
        """Everyone who answered within the election timeout, and this node."""
        since_ms = self._raft.now_ms - self._raft.timing.election_timeout_ms
        return [self._raft.node_id, *(node_id for node_id, progress in self.peers.items()
                                      if progress.heard_ms >= since_ms)]

    def furthest(self) -> NodeId | None:
        """The voter, other than this node, that has most of the log."""
        voters = [voter for voter in self.heard_lately()
                  if voter in self._raft.configuration.voters and voter in self.peers]
        return max(voters, key=lambda voter: self.peers[voter].match, default=None)

    def fit_to_vote(self) -> list[NodeId]:
        """Those that have all that is decided, and can help to elect a leader at once."""
        committed = self._raft.log.committed
        return [self._raft.node_id, *(
            node_id for node_id, progress in self.peers.items()
            if progress.match >= committed and not progress.is_blank)]

    def matches(self) -> dict[NodeId, int]:
        """How far the log is durable, everywhere."""
        found: dict[NodeId, int] = {node: peer.match for node, peer in self.peers.items()}
        found[self._raft.node_id] = self._raft.log.durable
        return found

    def rounds(self, own: int) -> dict[NodeId, int]:
        """The last heartbeat that each has answered."""
        found = {node: peer.round for node, peer in self.peers.items()}
        found[self._raft.node_id] = own
        return found

    # --- sending ----------------------------------------------------------------------------

    def flush(self) -> None:
        """Send what there is to send."""
        for node_id, progress in self.peers.items():
            self._push(node_id, progress)

    def heartbeat(self, number: int) -> None:
        self._round = number
        for node_id, progress in self.peers.items():
            self._heartbeat(node_id, progress, number)

    def lost_sight(self, node_id: NodeId) -> None:
        """What was sent to `node_id` may be lost: find out where it is."""
        progress = self.peers.get(node_id)
        if progress is not None and progress.flow is not Flow.IMAGE:
            progress.probe_from(progress.match + 1)
        elif progress is not None:
            progress.is_waiting = False

    def image_made(self, image: Image) -> None:
        self._image = image, join_items(image.items)

    def _push(self, node_id: NodeId, progress: Progress) -> None:
        log = self._raft.log
        if progress.flow is not Flow.IMAGE and log.find_term(progress.next - 1) is None:
            self._begin_image(progress)
        if progress.flow is Flow.IMAGE:
            self._send_piece(node_id, progress)
        elif log.find_term(progress.next - 1) is None:
            pass  # until there is an image
        elif progress.flow is Flow.PROBE:
            if progress.may_send():
                self._send_entries(node_id, progress)
        else:
            while progress.next < self._end and progress.may_send():
                self._send_entries(node_id, progress)
            if min(progress.match, log.committed) > progress.committed_told:
                self._heartbeat(node_id, progress, NO_ROUND)  # to tell what is decided

    def _send_entries(self, node_id: NodeId, progress: Progress) -> None:
        log = self._raft.log
        entries = log.run(progress.next, self._end) if progress.next < self._end else ()
        self._send_append(node_id, progress, entries)
        progress.sent(RaftIndex(progress.next - 1 + len(entries)))
        progress.sent_round = self._round

    @property
    def _end(self) -> int:
        """Where to stop sending (C5)."""
        log = self._raft.log
        is_held = log.configuration_index > log.durable
        return log.configuration_index if is_held else log.last_index + 1

    def _send_append(
        self, node_id: NodeId, progress: Progress, entries: tuple[Entry, ...]
    ) -> None:
        raft, log = self._raft, self._raft.log
        prev_index = RaftIndex(progress.next - 1)
        prev_term = log.find_term(prev_index)
        assert prev_term is not None, prev_index
        raft.send(node_id, Append(raft.term, prev_index, prev_term, log.committed, log.last_index,
                                  entries))
        progress.committed_told = log.committed

    def _heartbeat(self, node_id: NodeId, progress: Progress, number: int) -> None:
        committed = min(progress.match, self._raft.log.committed)
        self._raft.send(node_id, Heartbeat(self._raft.term, committed, number))
        progress.committed_told = max(progress.committed_told, committed)

    def _begin_image(self, progress: Progress) -> None:
        """What it needs next is gone: send an image, as soon as there is one that will do.

        It must be there to get it: who knows how old the image would be when it comes back.
        """
        silence_ms = self._raft.now_ms - progress.heard_ms
        if silence_ms > 2 * self._raft.timing.heartbeat_interval_ms:
            return
        if self._image is None or self._image[0].index < self._raft.log.image_index:
            self._raft.wants_image = True
            return
        progress.install(Pieces(*self._image))

    def _send_piece(self, node_id: NodeId, progress: Progress) -> None:
        assert progress.pieces is not None
        if not progress.is_waiting:
            raft = self._raft
            raft.send(node_id, progress.pieces.message(raft.term, raft.log.last_index))
            progress.is_waiting = True
            progress.sent_round = self._round

    # --- what they answer -------------------------------------------------------------------

    def appended(self, sender: NodeId, reply: AppendReply) -> bool:
        """An answer to entries, or to an image; is there more to count now?"""
        progress = self._hear(sender)
        log = self._raft.log
        if progress is None or reply.index > log.last_index:
            return False
        if reply.is_ok:
            progress.is_blank = reply.is_blank
            is_news = progress.matched(reply.index)
            if progress.match == log.last_index:
                progress.caught_up_ms = self._raft.now_ms
            return is_news
        if reply.is_blank:
            progress.forget()
        else:
            place, _ = log.conflict_hint(reply.hint, reply.hint_term)
            progress.refused(reply.index, place + 1)
        return False

    def answered(self, sender: NodeId, reply: HeartbeatReply) -> None:
        """An answer to a heartbeat: what was sent before and not answered is lost, or slow."""
        progress = self._hear(sender)
        if progress is None or reply.round > self._round:
            return  # a round that was not asked for confirms nothing
        progress.round = max(progress.round, reply.round)
        is_behind = progress.match < progress.next - 1 or progress.flow is not Flow.REPLICATE
        if not is_behind and progress.match == self._raft.log.last_index:
            progress.caught_up_ms = self._raft.now_ms
        elif is_behind and reply.round > progress.sent_round:
            self._ask_again(sender, progress)

    def _ask_again(self, node_id: NodeId, progress: Progress) -> None:
        """It answered what was sent later, so what was sent before is lost."""
        progress.is_waiting = False
        if (progress.flow is Flow.REPLICATE
                and self._raft.log.find_term(progress.next - 1) is not None):
            self._send_append(node_id, progress, ())  # it will tell where the gap is
            progress.sent_round = self._round

    def received(self, sender: NodeId, reply: InstallReply) -> None:
        """A piece of an image has arrived."""
        progress = self._hear(sender)
        if progress is None or progress.pieces is None:
            return
        if progress.pieces.image.index == reply.index:
            progress.pieces.go_on_from(reply.position)
            progress.is_waiting = False

    def _hear(self, sender: NodeId) -> Progress | None:
        progress = self.peers.get(sender)
        if progress is not None:
            progress.heard_ms = self._raft.now_ms
        return progress
