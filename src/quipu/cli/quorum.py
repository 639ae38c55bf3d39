"""`quipu quorum`: the nodes that elect the controller; list them, add one, remove one."""

import time
from collections.abc import Iterable
from typing import Annotated, Any, Final, cast

import typer

from quipu.cli import direct, kafka
from quipu.cli.application import PLAIN
from quipu.cli.errors import CommandFailed
from quipu.cli.kafka import AsJson, Bootstrap
from quipu.cli.output import show, tell
from quipu.model.errors import Code
from quipu.wire.messages.k55_describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    QuorumPartitionData,
    ReplicaState,
    TopicData,
)
from quipu.wire.messages.k80_add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from quipu.wire.messages.k81_remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)

app = typer.Typer(help="The nodes that elect the controller: list, add and remove.", **PLAIN)

DESCRIBE_VERSION: Final = 2
CATCH_UP_MS: Final = 30_000  # that a new voter may take to get the metadata
DUPLICATE_VOTER: Final = 126
VOTER_NOT_FOUND: Final = 127

NodeNumber = Annotated[
    int, typer.Argument(metavar="ID", min=0, help="Number of a node, as `quipu chain describe` "
                        "and Kafka's tools show it.")]


@app.command("list")
def list_(*, bootstrap: Bootstrap = kafka.DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
    """List the nodes that have the metadata: voters, and observers, which do not vote."""
    quorum = describe(bootstrap)
    rows = [*_rows(quorum, quorum.current_voters, "voter"),
            *_rows(quorum, quorum.observers, "observer")]
    show(rows, ["id", "role", "log_end", "behind", "heard_ms_ago"], as_json=as_json)


@app.command()
def add(node: NodeNumber, *, bootstrap: Bootstrap = kafka.DEFAULT_BOOTSTRAP) -> None:
    """Let a node vote that runs; returns when it has all metadata, and it is decided.

    With two voters the loss of either stops decisions: go on to three.
    """
    doubts: list[int] = []
    request = AddRaftVoterRequest(voter_id=node, timeout=CATCH_UP_MS)
    answer = cast("AddRaftVoterResponse", direct.ask(bootstrap, request, doubts=doubts))
    _check(f"node {node} cannot be added", answer, DUPLICATE_VOTER if doubts else Code.NONE)
    tell(f"node {node} is a voter")


@app.command()
def remove(node: NodeNumber, *, bootstrap: Bootstrap = kafka.DEFAULT_BOOTSTRAP) -> None:
    """Take its vote from a node; it stays in the cluster, and in its chain."""
    doubts: list[int] = []
    request = RemoveRaftVoterRequest(voter_id=node)
    answer = cast("RemoveRaftVoterResponse", direct.ask(bootstrap, request, doubts=doubts))
    _check(f"node {node} cannot be removed", answer, VOTER_NOT_FOUND if doubts else Code.NONE)
    tell(f"node {node} is no voter any more")


def describe(bootstrap: str) -> QuorumPartitionData:
    """The quorum as its leader sees it."""
    request = DescribeQuorumRequest(topics=[TopicData(
        topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])])
    answer = cast("DescribeQuorumResponse", direct.ask(bootstrap, request, DESCRIBE_VERSION))
    if answer.error_code != Code.NONE or not answer.topics:
        raise CommandFailed(
            "no controller answers: half of the voters or more are down, or cut off "
            f"[{direct.code_name(answer.error_code)}]")
    return answer.topics[0].partitions[0]


def _rows(
    quorum: QuorumPartitionData, replicas: Iterable[ReplicaState], role: str
) -> list[dict[str, Any]]:
    end = max((each.log_end_offset for each in quorum.current_voters), default=0)
    now_ms = int(time.time() * 1000)
    return [
        {"id": each.replica_id, "role": "leader" if each.replica_id == quorum.leader_id else role,
         "log_end": each.log_end_offset, "behind": end - each.log_end_offset,
         "heard_ms_ago": max(now_ms - each.last_fetch_timestamp, 0)
         if each.last_fetch_timestamp >= 0 else None}
        for each in sorted(replicas, key=lambda each: each.replica_id)]


def _check(
    doing: str, answer: AddRaftVoterResponse | RemoveRaftVoterResponse, done_before: int
) -> None:
    """Fail unless it was done; now, or by an earlier try whose answer did not come."""
    if answer.error_code not in (Code.NONE, done_before):
        raise CommandFailed(
            f"{doing}: {answer.error_message or 'no reason was given'} "
            f"[{direct.code_name(answer.error_code)}]")
