"""What a replica is doing, in one word."""

from enum import StrEnum


class Role(StrEnum):
    """What a replica is doing, for people."""

    NONE = "none"  # no member, or an offline one
    RECOVERING = "recovering"  # head, about to lead
    LEADING = "leading"
    FOLLOWING = "following"
    JOINING = "joining"  # a serving member that does not have the epoch's configuration yet
    SYNCING = "syncing"
    FENCED = "fenced"  # there is a newer epoch; waiting to be told
    HALTED = "halted"
