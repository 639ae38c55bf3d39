"""Kafka's tools for what a broker has not been given: ACLs, quotas, SCRAM users, clients'
metrics, transactions.  They say that there is none, not that the version is wrong.
"""

import re

import pytest

from tests.harness.progress import wait_for
from tests.interop.brokers import Broker

pytestmark = pytest.mark.interop


def test_acls_without_an_authorizer(broker: Broker, topic: str) -> None:
    """K1: listing, adding and removing are answered with SECURITY_DISABLED."""
    for words in (["--list"],
                  ["--add", "--allow-principal", "User:a", "--operation", "Read",
                   "--topic", topic],
                  ["--remove", "--force", "--allow-principal", "User:a", "--operation", "Read",
                   "--topic", topic]):
        done = broker.tools.attempt("kafka-acls", *words)
        assert "SecurityDisabledException" in done.out + done.err, done


def test_configs_of_users_clients_groups_and_metrics(broker: Broker, topic: str) -> None:
    """K1, K9: no user, no client and no subscription to metrics has settings; a group may be given
    some.
    """
    run = broker.tools.run
    for kind in ("users", "clients", "ips", "client-metrics"):
        assert run("kafka-configs", "--describe", "--entity-type", kind).strip() == ""
    assert run("kafka-client-metrics", "--list").strip() == ""
    group = ("--entity-type", "groups", "--entity-name", f"group-of-{topic}")
    run("kafka-configs", "--alter", *group, "--add-config", "consumer.session.timeout.ms=50000")
    wait_for(lambda: "consumer.session.timeout.ms=50000 sensitive=false" in run(
        "kafka-configs", "--describe", *group))


def test_dynamic_settings_of_a_broker(broker: Broker) -> None:
    """K9: threads and throttles of a broker are set while it runs, and taken back."""
    names = ("log.cleaner.threads=2", "num.io.threads=9",
             "leader.replication.throttled.rate=1000000")
    broker.tools.run("kafka-configs", "--alter", "--broker", "1", "--add-config", ",".join(names))

    def set_names() -> set[str]:
        shown = broker.tools.run("kafka-configs", "--describe", "--broker", "1")
        return {name for name in names if name in shown}

    wait_for(lambda: set_names() == set(names), what=set_names)
    broker.tools.run("kafka-configs", "--alter", "--broker", "1", "--delete-config",
                     ",".join(name.partition("=")[0] for name in names))
    wait_for(lambda: not set_names(), what=set_names)


def test_features_and_transactions(broker: Broker) -> None:
    """K1: a finalized metadata version is shown; no transaction is listed."""
    shown = broker.tools.run("kafka-features", "describe")
    assert re.search(r"Feature: metadata\.version\s.*FinalizedVersionLevel: \d\.\d-IV\d", shown)
    listed = broker.tools.run("kafka-transactions", "list").splitlines()
    assert [line.split()[0] for line in listed] == ["TransactionalId"]


@pytest.mark.parametrize("broker", ["kafka"], indirect=True)
def test_a_transaction_that_nobody_began(broker: Broker) -> None:
    """K1: it is not found, which has nothing to do with authorization."""
    done = broker.tools.attempt("kafka-transactions", "describe", "--transactional-id", "nobody")
    assert done.code == 1, done
    assert "authoriz" not in (done.out + done.err).lower(), done
