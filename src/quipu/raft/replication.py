"""What a leader sends to its followers and observers, and when.

Entries are sent when `flush` is called, at the end of a turn, not when they are proposed: so those
that were proposed in one turn go out in one message.

Heartbeats make up for rejected and lost messages: a response to one shows that messages arrive, so
what was sent before and is not acknowledged is sent again (raft.P2).
"""

from typing import TYPE_CHECKING

from quipu.model.ids import NodeId, RaftIndex
from quipu.raft.messages import (
    NO_ROUND,
    AppendEntries,
    AppendEntriesResponse,
    InstallSnapshotResponse,
    RaftEntry,
    RaftHeartbeat,
    RaftHeartbeatResponse,
    Snapshot,
)
from quipu.raft.progress import Progress, ProgressState
from quipu.raft.settings import OBSERVER_PATIENCE, OBSERVERS_MAX
from quipu.raft.snapshot import SnapshotSender, join_items

if TYPE_CHECKING:
    from quipu.raft.core import Raft


class LogReplication:
    """A leader's replication of its log: the progress of each other node, and what it is sent."""

    def __init__(self, raft: "Raft") -> None:
        self.peers: dict[NodeId, Progress] = {}
        self._raft = raft
        self._round = 0  # of the last heartbeats that were sent
        self._snapshot: tuple[Snapshot, bytes] | None = None  # the newest, while a node is sent it
        self.add_voters()

    def invariants(self) -> None:
        """Assert what holds between two steps; each progress is checked when it changes."""
        peers = self.peers
        assert self._raft.node_id not in peers, self._raft.node_id
        assert len(peers) <= OBSERVERS_MAX, len(peers)
        assert self._snapshot is None or self._snapshot[0].index <= self._raft.log.commit_index, (
            self._snapshot[0].index)

    def add_voters(self) -> None:
        """Send to every voter.  A removed one becomes an observer, and so learns of its removal."""
        before = len(self.peers)
        for voter in self._raft.configuration.voters:
            self.add(voter)
        assert len(self.peers) >= before, (len(self.peers), before)  # no node is dropped

    def add(self, node_id: NodeId) -> None:
        """Send to `node_id` from now on, if there is room for one more."""
        known = self.peers.get(node_id)
        if known is not None:
            assert known.heard_ms <= self._raft.now_ms, (known.heard_ms, self._raft.now_ms)
            known.heard_ms = self._raft.now_ms
            known.is_waiting = False
        elif node_id != self._raft.node_id and len(self.peers) < OBSERVERS_MAX:
            self.peers[node_id] = Progress(
                next_index=RaftIndex(self._raft.log.last_index + 1), heard_ms=self._raft.now_ms)

    def drop_silent_observers(self) -> None:
        """Stop sending to observers silent for OBSERVER_PATIENCE election timeouts."""
        patience_ms = OBSERVER_PATIENCE * self._raft.timing.election_timeout_ms
        voters = self._raft.configuration.voters
        assert self._raft.node_id in voters, voters  # raft.A4
        for node_id, progress in list(self.peers.items()):
            assert progress.heard_ms <= self._raft.now_ms, (node_id, progress.heard_ms)
            if node_id not in voters and self._raft.now_ms - progress.heard_ms > patience_ms:
                del self.peers[node_id]
        if all(progress.snapshot_sender is None for progress in self.peers.values()):
            self._snapshot = None

    def recently_active(self) -> list[NodeId]:
        """Return the nodes that responded within the election timeout, and this node."""
        since_ms = self._raft.now_ms - self._raft.timing.election_timeout_ms
        return [self._raft.node_id, *(node_id for node_id, progress in self.peers.items()
                                      if progress.heard_ms >= since_ms)]

    def most_up_to_date_voter(self) -> NodeId | None:
        """Return the voter, other than this node, that has most of the log."""
        voters = [voter for voter in self.recently_active()
                  if voter in self._raft.configuration.voters and voter in self.peers]
        assert self._raft.node_id not in voters, voters
        return max(voters, key=lambda voter: self.peers[voter].match_index, default=None)

    def able_to_vote(self) -> list[NodeId]:
        """Return the nodes that have every committed entry, and do not refuse to vote (raft.R5)."""
        commit_index = self._raft.log.commit_index
        return [self._raft.node_id, *(
            node_id for node_id, progress in self.peers.items()
            if progress.match_index >= commit_index and not progress.is_blank)]

    def matches(self) -> dict[NodeId, int]:
        """Return how far the log is durable on each node, this one included (raft.A2)."""
        log = self._raft.log
        found: dict[NodeId, int] = {node: peer.match_index for node, peer in self.peers.items()}
        assert self._raft.node_id not in found, found
        assert log.durable <= log.last_index, (log.durable, log.last_index)  # raft.G6
        found[self._raft.node_id] = log.durable
        return found

    def rounds(self, own: int) -> dict[NodeId, int]:
        """Return the last round of heartbeats that each node has responded to."""
        found = {node: peer.round for node, peer in self.peers.items()}
        assert self._raft.node_id not in found, found
        assert own >= self._round, (own, self._round)
        found[self._raft.node_id] = own
        return found

    # --- sending ----------------------------------------------------------------------------

    def flush(self) -> None:
        """Send each node what it lacks."""
        for node_id, progress in self.peers.items():
            self._push(node_id, progress)

    def heartbeat(self, number: int) -> None:
        """Send heartbeats of round `number` to every other node."""
        assert number > self._round, (number, self._round)  # raft.D1
        last_index = self._raft.log.last_index
        self._round = number
        for node_id, progress in self.peers.items():
            self._heartbeat(node_id, progress, number)
            assert progress.round < number, (progress.round, number)  # raft.D1
            progress.invariants(last_index)

    def probe_again(self, node_id: NodeId) -> None:
        """Find out where the log of `node_id` ends: what was sent to it may be lost."""
        progress = self.peers.get(node_id)
        if progress is None:
            return
        if progress.state is not ProgressState.SNAPSHOT:
            progress.probe_from(progress.match_index + 1)
        progress.is_waiting = False
        progress.invariants(self._raft.log.last_index)

    def snapshot_made(self, snapshot: Snapshot) -> None:
        """Keep `snapshot` for the nodes that need one."""
        assert self._snapshot is None or snapshot.index >= self._snapshot[0].index, snapshot.index
        assert snapshot.index <= self._raft.log.commit_index, snapshot.index
        self._snapshot = snapshot, join_items(snapshot.items)

    def _push(self, node_id: NodeId, progress: Progress) -> None:
        log = self._raft.log
        is_compacted = log.find_term(progress.next_index - 1) is None
        assert progress.next_index <= log.last_index + 1, (progress.next_index, log.last_index)
        if is_compacted and progress.state is not ProgressState.SNAPSHOT:
            self._begin_snapshot(progress)
        if progress.state is ProgressState.SNAPSHOT:
            self._send_snapshot_chunk(node_id, progress)
        elif is_compacted:
            pass  # until there is a snapshot to send
        elif progress.state is ProgressState.PROBE:
            if progress.may_send():
                self._send_entries(node_id, progress)
        else:
            while progress.next_index < self._end and progress.may_send():
                self._send_entries(node_id, progress)
            if min(progress.match_index, log.commit_index) > progress.commit_index_sent:
                self._heartbeat(node_id, progress, NO_ROUND)  # for its commit index

    def _send_entries(self, node_id: NodeId, progress: Progress) -> None:
        log = self._raft.log
        start, end = progress.next_index, self._end
        assert end <= log.configuration_index or log.configuration_index <= log.durable, (
            end, log.configuration_index, log.durable)  # raft.C5
        entries = log.entries_for_message(start, end) if start < end else ()
        assert not entries or entries[0].index == start, (entries[0].index, start)
        self._send_append(node_id, progress, entries)
        progress.sent(RaftIndex(start - 1 + len(entries)))
        progress.sent_round = self._round
        progress.invariants(log.last_index)

    @property
    def _end(self) -> int:
        """Return the index at which to stop sending (raft.C5)."""
        log = self._raft.log
        configuration_index = log.configuration_index
        return (configuration_index if configuration_index > log.durable  # raft.C5
                else log.last_index + 1)

    def _send_append(
        self, node_id: NodeId, progress: Progress, entries: tuple[RaftEntry, ...]
    ) -> None:
        raft, log = self._raft, self._raft.log
        prev_index = RaftIndex(progress.next_index - 1)
        prev_term = log.find_term(prev_index)
        assert prev_term is not None, prev_index
        assert prev_index >= progress.match_index, (prev_index, progress.match_index)  # raft.P1
        raft.send(node_id, AppendEntries(
            raft.term, prev_index, prev_term, log.commit_index, log.last_index, entries))
        progress.commit_index_sent = log.commit_index

    def _heartbeat(self, node_id: NodeId, progress: Progress, number: int) -> None:
        commit_index = min(progress.match_index, self._raft.log.commit_index)
        assert number in (NO_ROUND, self._round), (number, self._round)  # raft.D1
        assert self._raft.is_leader, self._raft.role
        self._raft.send(node_id, RaftHeartbeat(self._raft.term, commit_index, number))
        progress.commit_index_sent = max(progress.commit_index_sent, commit_index)

    def _begin_snapshot(self, progress: Progress) -> None:
        """Send a snapshot, as soon as there is a recent one: the entries needed are compacted.

        Not to a node that is silent: the snapshot might be too old when the node is back.
        """
        assert progress.state is not ProgressState.SNAPSHOT, progress.state
        silence_ms = self._raft.now_ms - progress.heard_ms
        if silence_ms > 2 * self._raft.timing.heartbeat_interval_ms:
            return
        if self._snapshot is None or self._snapshot[0].index < self._raft.log.snapshot_index:
            self._raft.wants_snapshot = True
            return
        progress.send_snapshot(SnapshotSender(*self._snapshot))
        progress.invariants(self._raft.log.last_index)

    def _send_snapshot_chunk(self, node_id: NodeId, progress: Progress) -> None:
        assert progress.snapshot_sender is not None
        assert progress.state is ProgressState.SNAPSHOT, progress.state
        if not progress.is_waiting:
            raft = self._raft
            raft.send(node_id, progress.snapshot_sender.message(raft.term, raft.log.last_index))
            progress.is_waiting = True
            progress.sent_round = self._round

    # --- responses --------------------------------------------------------------------------

    def handle_append_response(self, sender: NodeId, response: AppendEntriesResponse) -> bool:
        """Take in a response to entries or a snapshot; return whether more is acknowledged."""
        progress = self._heard_from(sender)
        log = self._raft.log
        assert response.term == self._raft.term, (response.term, self._raft.term)
        if progress is None or response.index > log.last_index:
            return False
        if response.is_success:
            progress.is_blank = response.is_blank
            is_news = progress.matched(response.index)
            if progress.match_index == log.last_index:
                progress.caught_up_ms = self._raft.now_ms
            progress.invariants(log.last_index)
            return is_news
        if response.is_blank:
            progress.forget()
        else:
            place, _ = log.find_conflict_hint(response.hint_index, response.hint_term)
            progress.rejected(response.index, place + 1)
        progress.invariants(log.last_index)
        return False

    def handle_heartbeat_response(self, sender: NodeId, response: RaftHeartbeatResponse) -> None:
        """Take in a response to a heartbeat; what was sent before and not acknowledged is lost."""
        progress = self._heard_from(sender)
        if progress is None or response.round > self._round:
            return  # a round that was never sent confirms nothing
        assert response.term == self._raft.term, (response.term, self._raft.term)
        progress.round = max(progress.round, response.round)
        assert progress.round <= self._round, (progress.round, self._round)  # raft.D1
        is_behind = (progress.match_index < progress.next_index - 1
                     or progress.state is not ProgressState.REPLICATE)
        if not is_behind and progress.match_index == self._raft.log.last_index:
            progress.caught_up_ms = self._raft.now_ms
        elif is_behind and response.round > progress.sent_round:
            self._send_again(sender, progress)

    def _send_again(self, node_id: NodeId, progress: Progress) -> None:
        """Send again: the node responded to a later message, so the earlier is lost (raft.P2)."""
        assert progress.sent_round < self._round, (progress.sent_round, self._round)
        progress.is_waiting = False
        if (progress.state is ProgressState.REPLICATE
                and self._raft.log.find_term(progress.next_index - 1) is not None):
            self._send_append(node_id, progress, ())  # the response says where the gap is
            progress.sent_round = self._round
        progress.invariants(self._raft.log.last_index)

    def handle_snapshot_response(self, sender: NodeId, response: InstallSnapshotResponse) -> None:
        """Take in how much of a snapshot has arrived, and send the next chunk."""
        progress = self._heard_from(sender)
        if progress is None or progress.snapshot_sender is None:
            return
        assert progress.state is ProgressState.SNAPSHOT, progress.state
        if progress.snapshot_sender.snapshot.index == response.index:
            progress.snapshot_sender.resume_from(response.position)
            progress.is_waiting = False
        progress.invariants(self._raft.log.last_index)

    def _heard_from(self, sender: NodeId) -> Progress | None:
        """Note that `sender` responded now; return its progress, None if it is not sent to."""
        progress = self.peers.get(sender)
        if progress is not None:
            assert progress.heard_ms <= self._raft.now_ms, (sender, progress.heard_ms)
            progress.heard_ms = self._raft.now_ms
        return progress
