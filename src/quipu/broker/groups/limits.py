"""The memory that groups may use: the limits of one group, and the usage of all groups of a node.

Every member, protocol and offset counts with its bytes and an estimate for its objects, so that a
thousand empty protocols are not free.

Invariants
    broker.groups.B1  a node admits no group, member, assignment or offset that would exceed a
                      limit; it keeps what its log has already: limits apply to new ones
    broker.groups.B2  a group within its share, `group.max.total.bytes` divided by
                      `group.max.count`, is never refused because of other groups; so all members
                      together use at most twice `group.max.total.bytes`
    broker.groups.B3  offsets that are being written to the log count as if they were there
    broker.groups.B4  an address can have created at most as many groups as can still be created: so
                      the first new group of an address is never refused because of groups that
                      other addresses created.  Groups that were read from the log have no address
    broker.groups.B5  a group within its share of the offsets, `offsets.max.count` and
                      `offsets.max.bytes` divided by `group.max.count`, is never refused because of
                      other groups

Not here: what is counted (members.py, registry.py).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from quipu.broker.groups.events import GroupProtocol
from quipu.broker.observing.stats import Stats
from quipu.model.settings import BrokerSettings
from quipu.runtime.log_limits import LimitedLog

if TYPE_CHECKING:
    from quipu.broker.groups.kafka_records import CommittedOffset, OffsetKey

MEMBER_SIZE: Final = 1024  # of a member, besides its strings and bytes
PROTOCOL_SIZE: Final = 512  # of one of its protocols, besides its name and metadata
PENDING_SIZE: Final = 512  # of a member that got its id and has not joined with it yet
GROUP_SIZE: Final = 4096  # of a group without members
OFFSET_SIZE: Final = 256  # of a committed offset, besides its metadata

PROTOCOL_COUNT_MAX: Final = 100  # of one member; clients have a few
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
    """The limits of one group, and how long its first rebalance waits for more members."""

    initial_delay_ms: int = 0
    member_count_max: int = 1000
    member_size_max: int = 1 << 20  # of one member, with its metadata
    group_size_max: int = 4 << 20  # of all members, with their metadata and assignments
    # Whether the node has room for a group to grow by `growth`, to `size`.
    has_room: Callable[[int, int], bool] = lambda size, growth: True  # noqa: ARG005 no other groups
    # Called with the setting whose limit was exceeded, and the group's id.
    refused: Callable[[str, str], None] = lambda limit, group_id: None  # noqa: ARG005 not counted


class GroupUsage:
    """The memory that all groups of a node use; shared by its shards."""

    def __init__(self, settings: BrokerSettings, stats: Stats, limited: LimitedLog) -> None:
        self._settings = settings
        self._stats = stats
        self._limited = limited
        self._reserved_count = 0  # offsets on their way to the log (broker.groups.B3)
        self._reserved_size = 0
        self.group_count = 0
        self.created_count = 0  # ever
        # Groups by the address that made them (broker.groups.B4)
        self._made_by: Counter[str] = Counter()

    def limits(self) -> GroupLimits:
        """The limits of every group of this node."""
        settings = self._settings
        return GroupLimits(
            initial_delay_ms=settings.group_initial_rebalance_delay_ms,
            member_count_max=settings.group_max_size,
            member_size_max=member_size_max(settings),
            group_size_max=settings.group_max_bytes,
            has_room=self.has_room, refused=self.refused)

    def refused(self, limit: str, group_id: str) -> None:
        """Count and log a refusal, with the setting whose limit was exceeded."""
        self._stats.refusals[limit] += 1
        self._limited.warning(limit, "group %r: refused: the limit of %s", group_id, limit)

    # -- members

    def may_make(self, address: str) -> bool:
        """Whether this address may create one more group (broker.groups.B4)."""
        return self._made_by[address] < self._settings.group_max_count - self.group_count

    def made(self, address: str, count: int) -> None:
        """Count groups that this address created; negative when they are deleted."""
        self.created_count += max(count, 0)
        self._made_by[address] += count
        if not self._made_by[address]:
            del self._made_by[address]

    def has_room(self, size: int, growth: int) -> bool:
        """Whether a group may grow by `growth`, to `size` (broker.groups.B1, broker.groups.B2)."""
        total_max = self._settings.group_max_total_bytes
        return (self._stats.group_bytes + growth <= total_max
                or size <= total_max // self._settings.group_max_count)

    def grown(self, growth: int) -> None:
        """Count that a group uses `growth` more bytes, or fewer."""
        self._stats.group_bytes += growth

    # -- offsets

    def why_no_room(
        self,
        old: Mapping["OffsetKey", "CommittedOffset"],
        new: Mapping["OffsetKey", "CommittedOffset"],
    ) -> str:
        """The setting whose limit `new` offsets of a group with `old` would exceed; or empty."""
        settings, stats = self._settings, self._stats
        added = sum(key not in old for key in new)
        growth = offsets_size(new.values()) - offsets_size(
            old[key] for key in new if key in old)
        if added and len(old) + added > settings.group_max_offsets:
            return GROUP_MAX_OFFSETS
        groups_max = settings.group_max_count
        total = stats.offsets + self._reserved_count + added  # broker.groups.B3, broker.groups.B5
        if (added and total > settings.offsets_max_count
                and len(old) + added > settings.offsets_max_count // groups_max):
            return OFFSETS_MAX_COUNT
        size = stats.offset_bytes + self._reserved_size + growth
        if (growth > 0 and size > settings.offsets_max_bytes
                and offsets_size(old.values()) + growth > settings.offsets_max_bytes // groups_max):
            return OFFSETS_MAX_BYTES
        return ""

    def reserve(self, count: int, size: int) -> None:
        """Count offsets that are being written; negative when they are written."""
        self._reserved_count += count
        self._reserved_size += size

    def kept(self, count: int, size: int) -> None:
        """Count offsets that are kept; negative when they are deleted."""
        self._stats.offsets += count
        self._stats.offset_bytes += size


def member_size_max(settings: BrokerSettings) -> int:
    """The bytes that one member may use, with its metadata."""
    return min(1 << 20, settings.group_max_bytes)


def protocols_size(protocols: Iterable[GroupProtocol]) -> int:
    """The bytes that a member's protocols use."""
    return sum(PROTOCOL_SIZE + text_size(name) + len(metadata) for name, metadata in protocols)


def offsets_size(offsets: "Iterable[CommittedOffset]") -> int:
    """The bytes that committed offsets use."""
    return sum(map(offset_size, offsets))


def offset_size(offset: "CommittedOffset") -> int:
    """The bytes that one committed offset uses."""
    return OFFSET_SIZE + text_size(offset.metadata)


def text_size(text: str | None) -> int:
    """Bytes of a string, at most."""
    if text is None:
        return 0
    return len(text) if text.isascii() else 4 * len(text)
