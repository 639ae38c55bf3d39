"""`quipu chain remove`: what it asks, until when, and what it says."""

import json
from collections.abc import Iterator

import pytest

from quipu.model.errors import Code
from quipu.wire.messages.k55_describe_quorum import (
    DescribeQuorumResponse,
    QuorumPartitionData,
    QuorumTopicData,
    ReplicaState,
)
from quipu.wire.messages.k64_unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from quipu.wire.messages.k81_remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from quipu.wire.messages.k10007_remove_chain import RemoveChainRequest, RemoveChainResponse
from tests.cli.fake_nodes import Fake, listening
from tests.cli.test_chain import Rig


@pytest.fixture
def rig(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.setattr("quipu.cli.chain_removal.POLL_SECONDS", 0.01)
    fake = Fake()
    with listening(fake) as address:
        yield Rig(fake, address, capsys)


def answers(rig: Rig, *responses: RemoveChainResponse) -> None:
    rig.fake.scripted[RemoveChainRequest.KEY] = list(responses)


def voters(rig: Rig, *node_ids: int) -> None:
    rig.fake.scripted[55] = [DescribeQuorumResponse(topics=[QuorumTopicData(
        topic_name="__cluster_metadata", partitions=[QuorumPartitionData(
            leader_id=1, current_voters=[ReplicaState(replica_id=each) for each in node_ids])])])]
    rig.fake.scripted[RemoveRaftVoterRequest.KEY] = [RemoveRaftVoterResponse()]
    rig.fake.scripted[UnregisterBrokerRequest.KEY] = [UnregisterBrokerResponse()]


def test_a_chain_is_drained_with_progress(rig: Rig) -> None:
    """V7: the request is repeated until it is done; what has changed is shown."""
    answers(rig, RemoveChainResponse(partitions_left=3, partitions_moving=3),
            RemoveChainResponse(partitions_left=3, partitions_moving=3),
            RemoveChainResponse(partitions_left=1, partitions_moving=0, trouble="t-0: full"),
            RemoveChainResponse(is_done=True))
    done = rig.chain("remove", "b", "--drain")
    assert done == (0, "", ("3 partitions left, 3 moving\n1 partition left, 0 moving; t-0: full\n"
                    "chain b is removed; its nodes are in no chain\n"))
    asked = [each for each in rig.fake.asked if isinstance(each, RemoveChainRequest)]
    assert len(asked) == 4
    assert all((each.name, each.drain, each.node_name) == ("b", True, None) for each in asked)


def test_programs_get_json(rig: Rig) -> None:
    """V7: a line for each change."""
    answers(rig, RemoveChainResponse(partitions_left=1, partitions_moving=1),
            RemoveChainResponse(is_done=True))
    lines = rig.chain("remove", "b", "--drain", "--json").out.splitlines()
    assert [json.loads(line)["done"] for line in lines] == [False, True]


def test_a_node_that_runs_is_to_be_stopped(rig: Rig) -> None:
    """V16: then the same command unregisters it; it votes no more before."""
    answers(rig, RemoveChainResponse(is_done=True, node_id=3, node_is_up=True))
    voters(rig, 1, 2, 3)
    done = rig.chain("remove", "a", "a-2", "--replace-by", "a-3")
    assert done.code == 0
    assert done.err.splitlines() == [
        "a-2 is no voter any more",
        ("a-2 is in no chain and has no partitions; stop it, and start this command again to "
        "unregister it")]
    answers(rig, RemoveChainResponse(is_done=True, node_id=3, node_is_up=False))
    voters(rig, 1, 2)
    assert rig.chain("remove", "a", "a-2", "--shorten") == (0, "", "a-2 is removed\n")
    assert isinstance(rig.fake.asked[-1], UnregisterBrokerRequest)
    assert rig.fake.asked[-1].broker_id == 3


def test_the_last_voter_stays(rig: Rig) -> None:
    """V16: the error says what to do first."""
    answers(rig, RemoveChainResponse(is_done=True, node_id=1))
    voters(rig, 1)
    done = rig.chain("remove", "a", "a-0", "--shorten")
    assert (done.code, "quipu quorum add" in done.err) == (1, True)


def test_a_node_that_is_gone_is_no_error(rig: Rig) -> None:
    """V16: safe to repeat; a replacement that is not there is one."""
    answers(rig, RemoveChainResponse(
        error_code=Code.BROKER_ID_NOT_REGISTERED,
        error_message="no node called 'a-7' is registered"))
    done = rig.chain("remove", "a", "a-7", "--shorten")
    assert (done.code, "nothing to remove" in done.err) == (0, True)
    done = rig.chain("remove", "a", "a-0", "--replace-by", "a-7")
    assert (done.code, "no node called 'a-7'" in done.err) == (1, True)


@pytest.mark.parametrize("words", [
    ("b", "--replace-by", "a-0"), ("a", "a-0", "--drain")])
def test_what_makes_no_sense_is_wrong_usage(rig: Rig, words: tuple[str, ...]) -> None:
    """V7: nothing is asked."""
    assert rig.chain("remove", *words).code == 2
    assert rig.fake.asked == []


def test_it_gives_up_in_time(rig: Rig) -> None:
    """V7: and says that the cluster goes on."""
    answers(rig, RemoveChainResponse(partitions_left=2, partitions_moving=2))
    done = rig.chain("remove", "b", "--drain", "--wait", "0.1")
    assert done.code == 1
    assert "start the command again to finish" in done.err
