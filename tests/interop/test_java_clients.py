"""Java clients of every protocol generation that Kafka 4 serves, on Kafka and on Quipu."""

import re
from pathlib import Path

import pytest

from tests.interop.brokers import Broker
from tests.interop.conftest import Running
from tests.interop.kafka_tools import shared_driver
from tests.interop.software import folder_of

pytestmark = pytest.mark.interop

WRITTEN = ["none", "gzip", "snappy", "lz4", "zstd", "none"]  # twenty each, then four
PARTITIONS = 4


def records() -> str:
    """What was written, as the program prints it: lines of partition/offset, and the content."""
    found = []
    for place, compression in enumerate(WRITTEN):
        for number in range(20 if place < len(WRITTEN) - 1 else 4):
            offset = place * 20 // PARTITIONS + number // PARTITIONS
            value = "null" if number % 7 == 3 else f"{compression}-{number}"
            found.append(f"{number % PARTITIONS}/{offset:05d}: key-{number} {value} "
                         f"{1_700_000_000_000 + number} {compression}")
    return "\n".join(sorted(found))


# What the program prints.
SEEN = f"""\
offsets of none: {{0=4, 1=4, 2=4, 3=4}}
offsets of gzip: {{0=9, 1=9, 2=9, 3=9}}
offsets of snappy: {{0=14, 1=14, 2=14, 3=14}}
offsets of lz4: {{0=19, 1=19, 2=19, 3=19}}
offsets of zstd: {{0=24, 1=24, 2=24, 3=24}}
offsets without idempotence: {{0=25, 1=25, 2=25, 3=25}}
two members share the partitions: true
everything is read: true
{records()}
members: 2
the other has all: true
committed: {{0=26, 1=26, 2=26, 3=26}}
the rest is read: true
read after the commit: 8
begins: 0
ends: 28
by time: 2
after every time: null
at an offset: 1/00007=key-9 gzip-9 1700000000009 gzip
partitions: [0, 1, 2, 3]
cut at: 5
retention.ms: -1 DYNAMIC_TOPIC_CONFIG
cleanup.policy: delete true
there are more partitions: true
the group is empty: true
a controller: true
the topic is gone: true
"""


def jars_of(generation: str, kafka_jars: Path) -> Path:
    return kafka_jars if generation == "4.2.0" else folder_of("clients") / generation


@pytest.mark.parametrize("generation", ["2.1.1", "2.8.2", "3.9.1", "4.2.0"])
def test_a_java_client_of_each_generation(
    broker: Broker, topic: str, generation: str, kafka_jars: Path
) -> None:
    """K1, K2, K3, K5: a producer writes with every compression, with and without idempotence; two
    consumers share the partitions, commit, leave, and a third goes on from there; offsets are
    found by time; an admin client cuts, describes, adds partitions and deletes.
    """
    done = shared_driver().run([jars_of(generation, kafka_jars)], "Generation", broker.bootstrap,
                               topic, "1")

    assert (done.code, done.out) == (0, SEEN), f"{done.out}\n{done.err}"


def test_java_clients_on_three_nodes(cluster: Broker, topic: str, kafka_jars: Path) -> None:
    """K1, K6: the same with replication factor 3, the newest client and the oldest."""
    for generation in ("4.2.0", "2.1.1"):
        done = shared_driver().run([jars_of(generation, kafka_jars)], "Generation",
                                   cluster.bootstrap, f"{topic}-{generation}", "3")
        assert (done.code, done.out) == (0, SEEN), f"{done.out}\n{done.err}"


def test_the_group_protocol_of_kafka_4(
    running: Running, topic: str, kafka_jars: Path
) -> None:
    """K1: `group.protocol=consumer` goes through the same story on Kafka; on Quipu, which does not
    serve it, the client stops with an error that says which setting to change.
    """
    def run(broker: Broker) -> tuple[int, str, str]:
        return shared_driver().run([kafka_jars], "Generation", broker.bootstrap, topic, "1",
                                   "group.protocol=consumer")

    code, out, err = run(running("kafka", 1))
    assert (code, out) == (0, SEEN), f"{out}\n{err}"

    code, out, err = run(running("quipu", 1))
    assert code == 1, out
    assert re.search(r"UnsupportedVersionException: The cluster does not support the new CONSUMER "
                     r"group protocol\. Set group\.protocol=classic", err), err
