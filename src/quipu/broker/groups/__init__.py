"""Consumer groups: who is a member, what is whose, and how far it has been read.

    group         one classic group as a state machine: events in, effects out
    states        its life as a table;  events, members, restore: its other parts
    registry      groups and their offsets: the state that a shard's log keeps
    records       what is written to that log;  group_log: the one who writes it
    shard         the driver of one partition's groups: parks requests, arms timers, keeps records
    shard_log     its log, while this node leads the partition
    coordinator   all shards of this node, and who has the others
    offsets       committed offsets
    limits        what groups may hold, and what all of them do;  admission: who may join

Start with `group`.  Not here: the messages (handlers/), the log (storage/state_log).
"""

from quipu.broker.groups.coordinator import Groups

__all__ = ["Groups"]
