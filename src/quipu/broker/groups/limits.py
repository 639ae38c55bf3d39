"""What groups may hold: the limits of one group, and what all groups of a node hold together.

Memory is counted as it is used: every member, protocol and offset counts for its bytes and for
what its objects take besides, so that a thousand empty protocols are not free.

Invariants
    B1  a node admits no group, member, assignment or offset that would take it over a limit;
        what its log holds already it keeps: limits decide about what comes
    B2  a group that takes no more than its share, `group.max.total.bytes` over `group.max.count`,
        is never refused because of what other groups hold; so all members together take at
        most twice `group.max.total.bytes`
    B3  offsets that are on their way to the log count as if they were there
    B4  an address has at most as many groups of its making as there may still be made: so the first
        new group of an address is never refused because of what others made up, before or after.
        Groups that were read from the log are nobody's
    B5  a group with no more than its share of the offsets, `offsets.max.count` and
        `offsets.max.bytes` over `group.max.count`, is never refused because of others'

Not here: what is counted (members.py, registry.py).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from quipu.broker.groups.events import Protocol
from quipu.broker.stats import Stats
from quipu.model.settings import BrokerSettings
from quipu.runtime.log_limits import LimitedLog

if TYPE_CHECKING:
    from quipu.broker.groups.registry import Committed, OffsetKey

MEMBER_SIZE: Final = 1024  # of a member, besides its strings and bytes
PROTOCOL_SIZE: Final = 512  # of one of its protocols, besides its name and metadata
PENDING_SIZE: Final = 512  # of one who was told its id and is not back yet
GROUP_SIZE: Final = 4096  # of a group without members
OFFSET_SIZE: Final = 256  # of a committed offset, besides its metadata

PROTOCOL_COUNT_MAX: Final = 100  # of one member; clients know a handful
GROUP_ID_SIZE_MAX: Final = 1024  # characters

GROUP_MAX_SIZE: Final = "group.max.size"
GROUP_MAX_COUNT: Final = "group.max.count"
GROUP_MAX_BYTES: Final = "group.max.bytes"
GROUP_MAX_TOTAL_BYTES: Final = "group.max.total.bytes"
GROUP_MAX_OFFSETS: Final = "group.max.offsets"
OFFSETS_MAX_COUNT: Final = "offsets.max.count"
OFFSETS_MAX_BYTES: Final = "offsets.max.bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """What a group may grow to, and how long its first rebalance waits for more members."""

    initial_delay_ms: int = 0
    member_count_max: int = 1000
    member_size_max: int = 1 << 20  # of one member, with its metadata
    group_size_max: int = 4 << 20  # of all members, with their metadata and assignments
    # Whether a group of `size` may grow by `growth`, as far as other groups are concerned.
    has_room: Callable[[int, int], bool] = lambda size, growth: True  # noqa: ARG005 no other groups
    # Told the setting that forbids something, and the group's id.
    refused: Callable[[str, str], None] = lambda limit, group_id: None  # noqa: ARG005 nobody cares


class GroupUsage:
    """What all groups of a node hold; one for all of its shards."""

    def __init__(self, settings: BrokerSettings, stats: Stats, limited: LimitedLog) -> None:
        self._settings = settings
        self._stats = stats
        self._limited = limited
        self._reserved_count = 0  # offsets on their way to the log (B3)
        self._reserved_size = 0
        self.group_count = 0
        self.created_count = 0  # ever
        self._made_by: Counter[str] = Counter()  # groups by the address that made them (B4)

    def limits(self) -> GroupLimits:
        """Of every group of this node."""
        settings = self._settings
        return GroupLimits(
            initial_delay_ms=settings.group_initial_rebalance_delay_ms,
            member_count_max=settings.group_max_size,
            member_size_max=member_size_max(settings),
            group_size_max=settings.group_max_bytes,
            has_room=self.has_room, refused=self.refused)

    def refused(self, limit: str, group_id: str) -> None:
        """Count a refusal, and say which setting it is because of."""
        self._stats.refusals[limit] += 1
        self._limited.warning(limit, "group %r: refused: as much as %s allows", group_id, limit)

    # -- members

    def may_make(self, address: str) -> bool:
        """May this address make one more group (B4)?"""
        return self._made_by[address] < self._settings.group_max_count - self.group_count

    def made(self, address: str, count: int) -> None:
        """It did, or one of its making is gone."""
        self.created_count += max(count, 0)
        self._made_by[address] += count
        if not self._made_by[address]:
            del self._made_by[address]

    def has_room(self, size: int, growth: int) -> bool:
        """Whether a group may grow by `growth`, to `size` (B1, B2)."""
        total_max = self._settings.group_max_total_bytes
        return (self._stats.group_bytes + growth <= total_max
                or size <= total_max // self._settings.group_max_count)

    def grown(self, growth: int) -> None:
        """The members of a group take so much more, or less."""
        self._stats.group_bytes += growth

    # -- offsets

    def why_no_room(
        self, old: Mapping["OffsetKey", "Committed"], new: Mapping["OffsetKey", "Committed"]
    ) -> str:
        """The setting that keeps a group with `old` offsets from keeping `new`; empty if none."""
        settings, stats = self._settings, self._stats
        added = sum(key not in old for key in new)
        growth = offsets_size(new.values()) - offsets_size(
            old[key] for key in new if key in old)
        if added and len(old) + added > settings.group_max_offsets:
            return GROUP_MAX_OFFSETS
        groups_max = settings.group_max_count
        total = stats.offsets + self._reserved_count + added
        if (added and total > settings.offsets_max_count
                and len(old) + added > settings.offsets_max_count // groups_max):  # B5
            return OFFSETS_MAX_COUNT
        size = stats.offset_bytes + self._reserved_size + growth
        if (growth > 0 and size > settings.offsets_max_bytes
                and offsets_size(old.values()) + growth > settings.offsets_max_bytes // groups_max):
            return OFFSETS_MAX_BYTES
        return ""

    def reserve(self, count: int, size: int) -> None:
        """Count offsets that are on their way to the log; negative when they have arrived (B3)."""
        self._reserved_count += count
        self._reserved_size += size

    def kept(self, count: int, size: int) -> None:
        """So many more offsets are kept, or fewer."""
        self._stats.offsets += count
        self._stats.offset_bytes += size


def member_size_max(settings: BrokerSettings) -> int:
    """What one member may take up, with its metadata."""
    return min(1 << 20, settings.group_max_bytes)


def protocols_size(protocols: Iterable[Protocol]) -> int:
    """What a member's own words take up."""
    return sum(PROTOCOL_SIZE + text_size(name) + len(metadata) for name, metadata in protocols)


def offsets_size(offsets: "Iterable[Committed]") -> int:
    """What committed offsets take up."""
    return sum(OFFSET_SIZE + text_size(each.metadata) for each in offsets)


def text_size(text: str | None) -> int:
    """Bytes of a string, at most."""
    if text is None:
        return 0
    return len(text) if text.isascii() else 4 * len(text)
