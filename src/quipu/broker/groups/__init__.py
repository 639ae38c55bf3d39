"""Consumer groups: their members, assignments and committed offsets.

    group.py         one classic group as a state machine: events in, effects out
    states.py        the states of a group and the transitions between them, as a table
    events.py        the events, effects and results of a group
    members.py       the members of one group, their protocols and their leader
    admission.py     checks whether a member may join a group
    subscription.py  reads the topics from a consumer's subscription
    restore.py       builds a group from its snapshot
    registry.py      the groups of one shard and their offsets: the state that its log keeps
    kafka_records.py  groups and offsets as records of `__consumer_offsets`, in Kafka's format
    records.py       the commands that they were kept as before
    offsets.py       commits, reads, deletes and expires offsets
    limits.py        the memory that groups may use, and that they use
    shard.py         the groups of one partition: parks requests, arms timers, writes records
    coordinator.py   all groups of this node

Start at `group.py`.  Not here: the messages (handlers/), the log and the lookup of coordinators
(coordinators/).
"""

from quipu.broker.groups.coordinator import Groups

__all__ = ["Groups"]
