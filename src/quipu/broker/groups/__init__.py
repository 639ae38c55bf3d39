"""Consumer groups: who is a member, what is whose, and how far it has been read.

    group         one classic group as a state machine: events in, effects out
    states        its life as a table;  events, members, restore: its other parts
    registry      all groups and their offsets: the state that the group log keeps
    records       what is written to that log;  group_log: the one who writes it
    coordinator   the driver: parks requests, arms timers, keeps records
    offsets       committed offsets

Start with `group`.  Not here: the messages (handlers/), the log (storage/state_log).
"""

from quipu.broker.groups.coordinator import Groups

__all__ = ["Groups"]
