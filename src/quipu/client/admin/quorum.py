"""Describes the quorum that elects the controller; adds and removes voters."""

from typing import Final, NamedTuple

from quipu.client.admin.routing import ask_any
from quipu.client.cluster import Cluster
from quipu.client.errors import ClientError, broker_refused, code_name
from quipu.model.errors import Code
from quipu.wire.messages.k55_describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    ReplicaState,
    TopicData,
)
from quipu.wire.messages.k80_add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from quipu.wire.messages.k81_remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)

METADATA_TOPIC: Final = "__cluster_metadata"
CATCH_UP_MS: Final = 30_000  # time for a new voter to fetch the metadata log
DUPLICATE_VOTER: Final = 126
VOTER_NOT_FOUND: Final = 127


class QuorumReplica(NamedTuple):
    """A node that replicates the metadata log, and its log end offset."""

    node_id: int
    log_end_offset: int
    last_fetch_ms: int | None  # when it last fetched; None if unknown


class QuorumDescription(NamedTuple):
    """The quorum as its leader sees it; replicas in the order of their ids."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]  # replicas of the metadata log that do not vote


def describe_quorum(cluster: Cluster) -> QuorumDescription:
    """The leader, voters and observers of the quorum, and the log end offset of each."""
    request = DescribeQuorumRequest(topics=[TopicData(
        topic_name=METADATA_TOPIC, partitions=[PartitionData(partition_index=0)])])
    response = ask_any(cluster, request, DescribeQuorumResponse).response
    if response.error_code or not response.topics:
        raise ClientError(
            "no controller responds: half of the voters or more are down or unreachable "
            f"[{code_name(response.error_code)}]")
    quorum = response.topics[0].partitions[0]
    return QuorumDescription(
        quorum.leader_id, quorum.leader_epoch, quorum.high_watermark,
        _replicas(quorum.current_voters), _replicas(quorum.observers))


def add_voter(cluster: Cluster, node_id: int) -> None:
    """Make a running node a voter; returns when it has caught up and the change is committed."""
    request = AddRaftVoterRequest(voter_id=node_id, timeout=CATCH_UP_MS)
    response, may_repeat = ask_any(cluster, request, AddRaftVoterResponse)
    _check(response, f"node {node_id} cannot be added", DUPLICATE_VOTER if may_repeat else None)


def remove_voter(cluster: Cluster, node_id: int) -> None:
    """Make a voter an observer."""
    request = RemoveRaftVoterRequest(voter_id=node_id)
    response, may_repeat = ask_any(cluster, request, RemoveRaftVoterResponse)
    _check(response, f"node {node_id} cannot be removed", VOTER_NOT_FOUND if may_repeat else None)


def _check(
    response: AddRaftVoterResponse | RemoveRaftVoterResponse, doing: str, done_before: int | None
) -> None:
    """Raise unless this request or an earlier attempt, whose response was lost, succeeded."""
    if response.error_code not in (Code.NONE, done_before):
        raise broker_refused(
            response.error_code, doing, response.error_message or "no reason was given")


def _replicas(states: list[ReplicaState]) -> tuple[QuorumReplica, ...]:
    return tuple(
        QuorumReplica(each.replica_id, each.log_end_offset,
                      each.last_fetch_timestamp if each.last_fetch_timestamp >= 0 else None)
        for each in sorted(states, key=lambda each: each.replica_id))
