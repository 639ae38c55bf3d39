"""The members of a group: places in order, one leader, votes."""

from quipu.broker.groups.events import GroupProtocol, MemberSnapshot, Ticket
from quipu.broker.groups.members import GroupMembers, member_of


def members_of(*likes: str) -> GroupMembers:
    """One member for each word; its letters are the protocols it likes, the best first."""
    members = GroupMembers()
    for index, names in enumerate(likes):
        protocols = tuple(GroupProtocol(name, b"") for name in names)
        members.add(member_of(MemberSnapshot(
            f"m{index}", f"i{index}", "c", "/h", 10, 20 + index, protocols, b"")))
    return members


def test_the_first_member_leads_until_it_goes() -> None:
    """K3: a group of some has a leader, a group of none has none."""
    members = members_of("a", "a")
    assert members.leader == "m0"
    members.remove(next(iter(members)))
    assert members.leader == "m1"
    members.remove(next(iter(members)))
    assert members.leader is None


def test_only_one_who_has_joined_is_elected() -> None:
    """K3: the leader has to be there, since it has to decide."""
    members = members_of("a", "a", "a")
    assert not members.elect()
    second = members.find("m1")
    assert second is not None
    second.join_ticket = Ticket(1)

    assert members.elect()
    assert members.leader == "m1"


def test_votes() -> None:
    """K3: most votes among what all know; of equals, the one that an older member prefers."""
    # Shows broker.groups.P3.
    assert members_of("abc", "bc", "cb").vote() == "b"
    assert members_of("ab", "ba").vote() == "a"
    assert members_of("ba", "ab").vote() == "b"


def test_who_fits_in() -> None:
    """K3: one protocol in common with all the others, whatever a member itself knew before."""
    # Shows broker.groups.P2.
    members = members_of("ab", "bc")
    b, c = (GroupProtocol("b", b""),), (GroupProtocol("c", b""),)

    assert members.can_agree(b, None)
    assert not members.can_agree(c, None)
    assert members.can_agree(c, members.find("m0"))
    assert not members.can_agree(c, members.find("m1"))


def test_a_new_id_keeps_the_place() -> None:
    """K3: a static member that bounces is who it was, for the order and the lead."""
    # Shows broker.groups.P1.
    members = members_of("a", "a")
    first = members.find_static("i0")
    assert first is not None
    members.rename(first, "new")

    assert [m.member_id for m in members] == ["new", "m1"]
    assert members.leader == "new"
    assert members.find_static("i0") is first
    assert members.find("m0") is None
    assert members.rebalance_timeout_ms() == 21
