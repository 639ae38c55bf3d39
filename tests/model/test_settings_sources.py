"""Sources of settings: precedence, file syntax, and errors with their place."""

from collections.abc import Callable

import pytest

from quipu.model.errors import SettingError
from quipu.model.settings import BrokerSettings
from quipu.model.settings_sources import (
    Given,
    broker_settings,
    from_assignments,
    from_environment,
    from_properties,
)

FILE = """\
# a comment
! another

node.id = 3
log.retention.ms:1000
broker.rack eu-1
num.partitions=\\
   7
"""


def test_a_properties_file_is_read_as_java_reads_it() -> None:
    given = from_properties(FILE, "server.properties")

    assert given == {
        "node.id": Given("3", "server.properties line 4", 4),
        "log.retention.ms": Given("1000", "server.properties line 5", 5),
        "broker.rack": Given("eu-1", "server.properties line 6", 6),
        "num.partitions": Given("7", "server.properties line 7", 7),
    }


def test_the_command_line_beats_the_environment_beats_the_file() -> None:
    settings = broker_settings(
        from_properties("num.partitions=1\nlog.segment.bytes=100000\nnode.id=9", "f"),
        from_environment({"QUIPU_LOG_SEGMENT_BYTES": "200000", "QUIPU_NODE_ID": "8", "HOME": "/"}),
        from_assignments(["node.id=7"]),
    )

    assert (settings.num_partitions, settings.node_id) == (1, 7)
    assert settings.log_segment_bytes == 200_000
    assert settings.explicit == {"num.partitions", "log.segment.bytes", "node.id"}
    assert settings.fetch_max_bytes == BrokerSettings().fetch_max_bytes


BAD = [
    ("unknown in a file", lambda: broker_settings(from_properties("a=1\n", "f")),
     "unknown setting a (f line 1)"),
    ("unknown in the environment",
     lambda: broker_settings(from_environment({"QUIPU_NODE_IDS": "1"})),
     "unknown setting node.ids (environment variable QUIPU_NODE_IDS); did you mean node.id?"),
    ("unknown on the command line", lambda: broker_settings(from_assignments(["node.ids=1"])),
     "unknown setting node.ids (--set node.ids); did you mean node.id?"),
    ("no value", lambda: from_assignments(["node.id"]), "write --set KEY=VALUE"),
    ("no key", lambda: from_properties("=1", "f"), "f line 1: write KEY=VALUE"),
    ("a bad value", lambda: broker_settings(from_properties("\nnode.id=x", "f")),
     "node.id=x (f line 2): must be an integer"),
    ("twice, by its other name too",
     lambda: from_properties("node.id=1\nbroker.id=2", "f"),
     "node.id is given twice: '1' (f line 1)"),
    ("every address, and none to tell",
     lambda: broker_settings(from_assignments(["listeners=0.0.0.0:9092"])),
     "set advertised.listeners"),
    ("an address nobody reaches",
     lambda: broker_settings(from_assignments(["advertised.listeners=:9092"])), "cannot connect"),
    ("one of several listeners on every address",
     lambda: broker_settings(from_assignments(
         ["listeners=A://h:1,B://0.0.0.0:2",
          "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT",
          "advertised.listeners=A://x:1"])),
     "listeners=B://0.0.0.0:2 accepts connections on every address"),
    ("a listener whose protocol nobody knows",
     lambda: broker_settings(from_assignments(["listeners=CLIENT://h:1"])),
     "given for CLIENT; add CLIENT:PLAINTEXT to listener.security.protocol.map"),
    ("a map that leaves out a listener",
     lambda: broker_settings(from_assignments(
         ["listeners=h:1", "listener.security.protocol.map=A:PLAINTEXT"])),
     "no security protocol is given for PLAINTEXT"),
    ("a listener with TLS",
     lambda: broker_settings(from_assignments(["listeners=SSL://h:1"])),
     "SSL is not supported yet"),
    ("a listener with SASL, by the map",
     lambda: broker_settings(from_assignments(
         ["listeners=A://h:1", "listener.security.protocol.map=A:SASL_PLAINTEXT"])),
     "SASL_PLAINTEXT is not supported yet"),
    ("advertised, and no listener",
     lambda: broker_settings(from_assignments(["listeners=h:1", "advertised.listeners=B://h:2"])),
     "B is not one of listeners"),
    ("voters that cannot be found", lambda: broker_settings(from_assignments(
        ["node.id=1", "peer.listener=h:1", "controller.quorum.voters=1,2@h:2,3"])),
     "set peer.discovery, or write ID@HOST:PORT"),
    ("bounds the wrong way round",
     lambda: broker_settings(from_assignments(["group.max.session.timeout.ms=5"])), "is more than"),
]


@pytest.mark.parametrize(("why", "act", "message"), BAD, ids=[case[0] for case in BAD])
def test_a_mistake_is_reported_with_its_place(
    why: str, act: Callable[[], object], message: str
) -> None:
    with pytest.raises(SettingError) as caught:
        act()

    assert message in str(caught.value)


def test_an_alias_is_the_same_setting() -> None:
    assert broker_settings(from_assignments(["broker.id=4"])).node_id == 4
    assert broker_settings(from_properties("log.dir=x", "f")).log_dirs == "x"
