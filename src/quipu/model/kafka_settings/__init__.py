"""Every setting of Kafka 4.2: whether it has an effect here, has none and why, or is refused.

    rows.py      what a row says, and how it is written
    honoured.py  types and defaults in Kafka of the settings that have an effect
    security.py  TLS, SASL, delegation tokens, access control, policies
    cluster.py   the controller, its quorum, replication
    groups.py    consumer, share and Streams groups, transactions
    node.py      threads, sockets, files, quotas, metrics
    topics.py    settings of topics
    earlier.py   settings of earlier versions, which Kafka 4 does not know any more
    prefixed.py  names that are made of a prefix and another name, such as listener.name.INSIDE.X

`KAFKA_BROKER` and `KAFKA_TOPIC` are the complete tables.  A test compares them with a Kafka 4.2
that runs.  Start with rows.py.
Not here: what a setting with an effect does (broker_settings, topic_settings).
"""

from collections.abc import Mapping
from typing import Final

from quipu.model.kafka_settings.cluster import CLUSTER
from quipu.model.kafka_settings.earlier import EARLIER
from quipu.model.kafka_settings.groups import GROUPS
from quipu.model.kafka_settings.honoured import HONOURED_BROKER, HONOURED_TOPIC
from quipu.model.kafka_settings.node import NODE
from quipu.model.kafka_settings.rows import KafkaSetting
from quipu.model.kafka_settings.security import SECURITY
from quipu.model.kafka_settings.topics import TOPICS

KAFKA_BROKER: Final[Mapping[str, KafkaSetting]] = {
    row.name: row for row in (*HONOURED_BROKER, *SECURITY, *CLUSTER, *GROUPS, *NODE)}
KAFKA_TOPIC: Final[Mapping[str, KafkaSetting]] = {
    row.name: row for row in (*HONOURED_TOPIC, *TOPICS)}
EARLIER_BROKER: Final[Mapping[str, KafkaSetting]] = {  # not described unless they are set
    row.name: row._replace(is_internal=True) for row in EARLIER}

assert len(KAFKA_BROKER) == sum(map(len, (HONOURED_BROKER, SECURITY, CLUSTER, GROUPS, NODE)))
assert not KAFKA_BROKER.keys() & EARLIER_BROKER.keys()
