"""Migrations of topics to diskless: what is asked for, and how far a partition is.

The numbers are those of requests and responses (wire/messages/k10006_migrate_topic.py).
"""

from enum import IntEnum


class MigrationAction(IntEnum):
    """What a request asks for."""

    DESCRIBE = 0
    BEGIN = 1
    CANCEL = 2


class MigrationStep(IntEnum):
    """How far a partition is."""

    NOT_BEGUN = 0  # it is on a chain, and takes writes
    SEALING = 1  # it takes no more writes; replicas are still to get the last ones
    COPYING = 2  # the rest of its records is copied to the remote tier
    SWITCHING = 3  # it is ready, and waits for the other partitions of the topic
    DONE = 4  # it is diskless
