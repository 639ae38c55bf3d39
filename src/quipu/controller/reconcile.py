"""The members that a chain should have, given which processes are up; the rules of chains.py.

Used for chains, and for partitions that have a chain of their own (failed_replicas.py).
"""

import dataclasses
from collections.abc import Iterable, Mapping

from quipu.controller.decision import Numbers
from quipu.controller.members import BrokerProcess, Chain, ChainMember
from quipu.model.chains import MemberState
from quipu.model.ids import NodeId


def reconciled(
    chain: Chain, up: Mapping[NodeId, BrokerProcess], *, waited: bool
) -> tuple[ChainMember, ...]:
    """The members as they should be if `up` are the processes that are up.

    `waited`: no serving process has lived on, and those that came back need wait no longer.
    """
    serving = [member for member in chain.serving if up.get(member.node_id) == member.process]
    if not serving:  # a cold start: controller.C1 and controller.C2 allow it to those that served
        serving = returned(chain, up)
        if not serving or (len(serving) < len(chain.serving) and not waited):
            return chain.members
    ids = {member.node_id for member in serving}
    rest = [member for member in chain.members if member.node_id not in ids]
    rest.sort(key=lambda member: member.state is not MemberState.SYNCING)
    members = in_order([*serving, *(idle(member, up) for member in rest)])
    assert ids <= set(chain.replica_set.serving), (chain, members)  # controller.C1
    assert len(members) == len(chain.members), (chain, members)
    assert {member.node_id for member in members} == set(chain.nodes), (chain, members)
    assert members[0].state is MemberState.SERVING, (chain, members)  # model.H2
    return members


def returned(chain: Chain, up: Mapping[NodeId, BrokerProcess]) -> list[ChainMember]:
    """Serving members that are up, each under the process that it has now.

    Not those that came back with another data directory: what they had is gone (controller.C1).
    """
    return [member.under(up[member.node_id]) for member in chain.serving
            if member.node_id in up and member.has_directory_of(up[member.node_id])]


def with_members(
    chain: Chain, members: tuple[ChainMember, ...], numbers: Numbers
) -> Chain:
    """`chain` with other members; under a new epoch if those that serve, or their order, change."""
    serving = tuple(member for member in members if member.state is MemberState.SERVING)
    changed = dataclasses.replace(
        chain, version=numbers.version(), members=members,
        epoch=chain.epoch if serving == chain.serving else numbers.epoch())
    assert changed.version > chain.version, (chain, changed)  # controller.S6
    assert changed.epoch >= chain.epoch, (chain, changed)  # controller.S6
    assert changed.epoch > chain.epoch or changed.serving == chain.serving, chain  # model.H3
    return changed


def promoted(chain: Chain, member: ChainMember, numbers: Numbers) -> Chain:
    """`chain` with the first of its syncing members serving, as the tail, under a new epoch."""
    assert member == chain.within(MemberState.SYNCING)[0], (chain, member)
    changed = with_members(chain, in_order(
        [*chain.serving, member._replace(state=MemberState.SERVING),
         *(other for other in chain.members[len(chain.serving):] if other is not member)]), numbers)
    assert changed.epoch > chain.epoch, (chain, changed)  # model.H3
    assert changed.replica_set.tail == member.node_id, (chain, changed)
    assert changed.serving[:-1] == chain.serving, (chain, changed)
    return changed


def idle(member: ChainMember, up: Mapping[NodeId, BrokerProcess]) -> ChainMember:
    """A member that does not serve: it syncs if it is up."""
    if member.node_id in up:
        return ChainMember(member.node_id, MemberState.SYNCING, *up[member.node_id])
    return member._replace(state=MemberState.OFFLINE)


def in_order(members: Iterable[ChainMember]) -> tuple[ChainMember, ...]:
    """Serving members first, then syncing ones, then offline ones (model.H1)."""
    return tuple(sorted(members, key=lambda member: member.state))
