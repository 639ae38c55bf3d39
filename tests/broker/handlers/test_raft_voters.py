"""AddRaftVoter and RemoveRaftVoter: the responses of a quorum of one, in every version."""

import pytest

from quipu.broker.handlers import k80_add_raft_voter, k81_remove_raft_voter
from quipu.model.errors import Code
from quipu.wire.messages.k80_add_raft_voter import AddRaftVoterRequest
from quipu.wire.messages.k81_remove_raft_voter import RemoveRaftVoterRequest
from tests.broker.clusters import a_broker, ask, versions
from tests.looped import looped


@pytest.mark.parametrize("version", versions(AddRaftVoterRequest))
@pytest.mark.parametrize(("voter", "cluster", "code"), [
    (1, None, k80_add_raft_voter.DUPLICATE_VOTER),
    (7, "another", k80_add_raft_voter.INCONSISTENT_CLUSTER_ID),
    (7, None, Code.INVALID_REQUEST),
])
@looped
async def test_who_cannot_become_a_voter(
    voter: int, cluster: str | None, code: int, version: int
) -> None:
    """K6: one that is, one of another cluster, one that is not there; and nothing changes."""
    broker = await a_broker()
    request = AddRaftVoterRequest(voter_id=voter, cluster_id=cluster, timeout=60_000)

    response = await ask(broker, k80_add_raft_voter, request, version)

    assert response.error_code == code
    assert response.error_message
    assert broker.cluster.voters == (1,)


@pytest.mark.parametrize(("voter", "cluster", "code"), [
    (1, None, Code.INVALID_REQUEST),
    (1, "another", k80_add_raft_voter.INCONSISTENT_CLUSTER_ID),
    (7, None, k81_remove_raft_voter.VOTER_NOT_FOUND),
])
@looped
async def test_who_cannot_be_removed(voter: int, cluster: str | None, code: int) -> None:
    """K6: the last voter, one of another cluster, one that is none."""
    broker = await a_broker()
    request = RemoveRaftVoterRequest(voter_id=voter, cluster_id=cluster)

    response = await ask(broker, k81_remove_raft_voter, request, 0)

    assert response.error_code == code
    assert broker.cluster.voters == (1,)
