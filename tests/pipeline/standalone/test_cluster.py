"""The same statements on one machine and on a cluster of processes give the same rows."""

from pathlib import Path

import pytest

from tests.harness.driver import Row, RunningDriver
from tests.harness.node import RunningNode
from tests.harness.spark_cluster import SparkCluster
from tests.pipeline.spark.broker import Broker

ORDERS = 300
BAD = range(7, ORDERS, 50)  # orders that are no text
SETTINGS = {
    "spark.executor.memory": "512m", "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "quipu.wait.ms": "100000",
}
QUERIES = [
    "SELECT * FROM people", "SELECT person, text, offset FROM orders WHERE offset % 3 = 0",
    "SELECT * FROM bought", "SELECT * FROM counted",
    "SELECT topic, partition, offset, key, value, error FROM orders_dead_letters",
    "SELECT topic, partition, offset, key, value, error FROM bought_dead_letters",
]


def statements(bootstrap: str) -> list[str]:
    """A source by key, one that only grows, a join and a sum over both."""
    source = f"FROM KAFKA BROKER '{bootstrap}' TOPIC"
    text = "KEY FORMAT TEXT VALUE FORMAT TEXT INCLUDE"
    join = "FROM orders o JOIN people p ON o.person = p.id"
    return [
        f"CREATE SOURCE people {source} 'people' {text} KEY AS id, PARTITION ENVELOPE UPSERT",
        f"CREATE SOURCE orders {source} 'orders' {text} KEY AS person, OFFSET ENVELOPE NONE",
        f"CREATE MATERIALIZED VIEW bought AS SELECT o.text AS thing, p.text AS name {join}",
        f"CREATE MATERIALIZED VIEW counted AS SELECT p.text, count(*) AS n {join} GROUP BY p.text",
    ]


def fill(broker: Broker) -> None:
    """People in two partitions, some of them gone, and what they bought, some of it unreadable."""
    for name in ("people", "orders"):
        broker.topic(name=name, partitions=2)
    for partition in range(2):
        ids = range(partition, 20, 2)
        broker.send("people", *(f"p{each}:first" for each in ids), partition=partition)
        broker.send("people", *(f"p{each}:{'' if each % 7 == 3 else f'name {each % 5}'}"
                                for each in ids), partition=partition)
    broker.send("orders", *(b"p%d:" % (number % 25) + (b"\xff" if number in BAD else b"%d" % number)
                            for number in range(ORDERS)))


def answers(driver: RunningDriver) -> dict[str, list[Row]]:
    return {query: driver.execute(query) for query in QUERIES}


@pytest.mark.timeout(1_800)  # waits are by progress; this is for what hangs
def test_a_cluster_gives_the_rows_that_one_machine_gives(tmp_path: Path) -> None:
    """I11: by one option, on a master and two workers, also while executors and workers die."""
    with (RunningNode(tmp_path / "data") as node, SparkCluster(tmp_path / "spark") as cluster,
          RunningDriver(tmp_path / "driver.log") as driver):
        broker = Broker(node.bootstrap)
        fill(broker)
        driver.connect(tmp_path / "local", settings=SETTINGS)
        for statement in statements(node.bootstrap):
            driver.execute(statement)
        local = answers(driver)
        driver.close()
        assert [len(rows) for rows in local.values()] == [17, 98, 198, 5, 6, 6]

        cluster.await_workers()
        driver.connect(tmp_path / "shared", master=cluster.master, settings=SETTINGS)
        for statement in statements(node.bootstrap):
            driver.execute(statement)
        assert answers(driver) == local
        assert [len(each) for each in cluster.executors().values()] == [1, 1]

        cluster.kill_executor(0)
        broker.send("orders", "p0:after the executor")
        assert driver.execute("SELECT * FROM bought WHERE thing LIKE 'after%'") == [
            ("after the executor", "name 0")]
        cluster.kill_worker(1)
        broker.send("orders", "p1:after the worker", partition=1)
        broker.send("people", "p0:")
        assert driver.execute("SELECT * FROM bought WHERE thing LIKE 'after%'") == [
            ("after the worker", "name 1")]
        assert driver.execute("SELECT sum(n) FROM counted") == [(198 + 1 - 12,)]
