"""Kafka's tools for resources and features: the same stories on Kafka and on Quipu."""

import re

import pytest

from tests.harness.progress import wait_for
from tests.interop.brokers import Broker

pytestmark = pytest.mark.interop

GROUP = "of-admin-apis"
TIMEOUT = "consumer.session.timeout.ms"


def test_acls_are_disabled(broker: Broker) -> None:
    """K1, K12: kafka-acls says that security is disabled; not that a version is not supported."""
    listed = broker.tools.attempt("kafka-acls", "--list")

    assert "SecurityDisabledException" in listed.out + listed.err, listed


def test_users_addresses_and_clients_have_no_settings(broker: Broker) -> None:
    """K1, K12: quotas and SCRAM: none are described."""
    for kind in ("users", "clients", "ips"):
        assert not broker.tools.run("kafka-configs", "--describe", "--entity-type", kind).strip()


def test_a_group_is_given_settings(broker: Broker) -> None:
    """K1, K5: kafka-configs sets one, shows it, refuses another, and takes it back."""
    tools, named = broker.tools, ("--entity-type", "groups", "--entity-name", GROUP)
    tools.run("kafka-configs", "--alter", *named, "--add-config", f"{TIMEOUT}=50000")
    wait_for(lambda: f"{TIMEOUT}=50000 sensitive=false" in tools.run(
        "kafka-configs", "--describe", *named))
    assert GROUP in tools.run("kafka-configs", "--describe", "--entity-type", "groups")
    refused = tools.attempt("kafka-configs", "--alter", *named, "--add-config", f"{TIMEOUT}=5")
    assert "InvalidConfigurationException" in refused.out + refused.err, refused
    tools.run("kafka-configs", "--alter", *named, "--delete-config", TIMEOUT)
    wait_for(lambda: TIMEOUT not in tools.run("kafka-configs", "--describe", *named))


def test_a_subscription_to_client_metrics(broker: Broker) -> None:
    """K1, K5: kafka-client-metrics creates one, shows it, lists it and deletes it."""
    tools = broker.tools
    tools.run("kafka-client-metrics", "--alter", "--name", "all", "--metrics", "org.apache.kafka",
              "--interval", "30000", "--match", "client_id=a.*")
    wait_for(lambda: "all" in tools.run("kafka-client-metrics", "--list").split())
    shown = tools.run("kafka-client-metrics", "--describe", "--name", "all")
    assert "interval.ms=30000" in shown
    assert "metrics=org.apache.kafka" in shown
    tools.run("kafka-client-metrics", "--delete", "--name", "all")
    wait_for(lambda: not tools.run("kafka-client-metrics", "--list").split())


def test_the_level_of_a_logger(broker: Broker) -> None:
    """K1, K9: kafka-configs shows the loggers of a broker, and sets the level of one."""
    tools, named = broker.tools, ("--entity-type", "broker-loggers", "--entity-name", "1")
    before = re.search(r"root=([A-Z]+) ", tools.run("kafka-configs", "--describe", *named))
    assert before is not None
    tools.run("kafka-configs", "--alter", *named, "--add-config", "root=ERROR")
    assert "root=ERROR " in tools.run("kafka-configs", "--describe", *named)
    tools.run("kafka-configs", "--alter", *named, "--add-config", f"root={before[1]}")
    refused = tools.attempt("kafka-configs", "--alter", *named, "--add-config", "root=LOUD")
    assert "InvalidConfigurationException" in refused.out + refused.err, refused


def test_features_have_levels(broker: Broker) -> None:
    """K1, K12: kafka-features shows a finalized version; its level can be asked for again."""
    shown = broker.tools.run("kafka-features", "describe")
    assert re.search(r"Feature: metadata\.version\s.*FinalizedVersionLevel: 4\.2-IV1\s", shown)
    broker.tools.run("kafka-features", "upgrade", "--feature", "metadata.version=29")
    refused = broker.tools.attempt("kafka-features", "upgrade", "--feature", "no.such.version=1")
    assert refused.code != 0, refused


def test_there_are_no_transactions(broker: Broker) -> None:
    """K1, K12: kafka-transactions shows an empty list."""
    listed = broker.tools.run("kafka-transactions", "list").splitlines()
    assert [line.split()[0] for line in listed] == ["TransactionalId"]


def test_the_quorum_of_one_node_has_a_voter_with_an_address(broker: Broker) -> None:
    """K1, K6: kafka-metadata-quorum shows where the one voter is."""
    shown = broker.tools.run("kafka-metadata-quorum", "describe", "--status")
    voters = next(line for line in shown.splitlines() if line.startswith("CurrentVoters"))

    assert re.search(r'"id": 1, .*"endpoints": \["[A-Z]+://127\.0\.0\.1:\d+"\]', voters), voters
