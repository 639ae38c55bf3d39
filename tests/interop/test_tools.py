"""Kafka's command line tools on one node, of Kafka and of Quipu: the same words and answers."""

import json
import re
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.harness.command import run_quipu
from tests.harness.progress import wait_for
from tests.interop.brokers import Broker

pytestmark = pytest.mark.interop


def configs(broker: Broker, *which: str) -> dict[str, str]:
    """The dynamic settings that kafka-configs shows; Kafka has min.insync.replicas among them from
    the beginning.
    """
    shown = broker.tools.run("kafka-configs", "--describe", *which)
    found = dict(re.findall(r"^  (\S+)=(\S*) sensitive=false", shown, re.MULTILINE))
    found.pop("min.insync.replicas", None)
    return found


def await_configs(broker: Broker, which: list[str], wanted: dict[str, str]) -> None:
    """Kafka answers before every node knows a new setting."""
    wait_for(lambda: configs(broker, *which) == wanted, what=lambda: configs(broker, *which))


def fill(broker: Broker, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce(topic, f"{number}", key=f"{number}", partition=number % 2)
    assert producer.flush(30) == 0


def test_kafka_topics(broker: Broker, topic: str) -> None:
    """K1, K5: topics are created, listed, described, given more partitions, and deleted."""
    run, attempt = broker.tools.run, broker.tools.attempt
    assert run("kafka-topics", "--create", "--topic", topic, "--partitions", "3",
               "--replication-factor", "1", "--config", "retention.ms=1000000") == (
        f"Created topic {topic}.\n")
    run("kafka-topics", "--create", "--if-not-exists", "--topic", topic)
    again = attempt("kafka-topics", "--create", "--topic", topic)
    assert again.code == 1
    assert "TopicExistsException" in again.err
    run("kafka-topics", "--create", "--topic", f"{topic}-assigned", "--replica-assignment", "1,1")
    assert {topic, f"{topic}-assigned"} <= set(run("kafka-topics", "--list").split())

    run("kafka-topics", "--alter", "--topic", topic, "--partitions", "4")
    first, *others = run("kafka-topics", "--describe", "--topic", topic).splitlines()
    assert re.fullmatch(
        rf"Topic: {topic}\tTopicId: \S{{22}}\tPartitionCount: 4\tReplicationFactor: 1\t"
        rf"Configs: (min.insync.replicas=1,)?retention.ms=1000000", first)
    assert [line.strip().partition("\tElr")[0] for line in others] == [
        f"Topic: {topic}\tPartition: {number}\tLeader: 1\tReplicas: 1\tIsr: 1"
        for number in range(4)]
    for lack in ("under-replicated", "unavailable", "under-min-isr", "at-min-isr"):
        shown = run("kafka-topics", "--describe", "--topic", topic, f"--{lack}-partitions")
        assert len(shown.splitlines()) == (4 if lack == "at-min-isr" else 0), shown

    fewer = attempt("kafka-topics", "--alter", "--topic", topic, "--partitions", "2")
    assert (fewer.code, "InvalidPartitionsException" in fewer.err) == (1, True), fewer
    run("kafka-topics", "--delete", "--topic", f"{topic}.*")
    assert not {topic, f"{topic}-assigned"} & set(run("kafka-topics", "--list").split())
    gone = attempt("kafka-topics", "--describe", "--topic", topic)
    assert (gone.code, f"Topic '{topic}' does not exist" in gone.out) == (1, True), gone


def test_kafka_configs_of_topics(broker: Broker, topic: str) -> None:
    """K1, K5, K9: settings are added, described, deleted; an unknown one is refused."""
    run, attempt = broker.tools.run, broker.tools.attempt
    run("kafka-topics", "--create", "--topic", topic, "--config", "retention.ms=1000000")
    run("kafka-configs", "--alter", "--topic", topic, "--add-config",
        "max.message.bytes=5000,cleanup.policy=[compact,delete]")
    run("kafka-configs", "--alter", "--topic", topic, "--delete-config", "retention.ms")
    await_configs(broker, ["--topic", topic], {
        "max.message.bytes": "5000", "cleanup.policy": "compact,delete"})
    everything = configs(broker, "--topic", topic, "--all")
    assert everything["retention.ms"] == "604800000"
    assert everything["segment.bytes"] == "1073741824"
    for wrong, error in (("nonsense=1", "InvalidConfigurationException"),
                         ("retention.ms=-7", "InvalidConfigurationException"),
                         ("cleanup.policy=burn", "InvalidConfigurationException")):
        refused = attempt("kafka-configs", "--alter", "--topic", topic, "--add-config", wrong)
        assert (refused.code, error in refused.err) == (1, True), refused
    await_configs(broker, ["--topic", topic], {
        "max.message.bytes": "5000", "cleanup.policy": "compact,delete"})


def test_kafka_configs_of_brokers(broker: Broker) -> None:
    """K1, K9: of one broker, and of all by default."""
    one, every = ("--broker", "1"), ("--entity-type", "brokers", "--entity-default")
    for which in (one, every):
        broker.tools.run("kafka-configs", "--alter", *which, "--add-config",
                         "message.max.bytes=2000000")
        await_configs(broker, [*which], {"message.max.bytes": "2000000"})
        broker.tools.run("kafka-configs", "--alter", *which, "--delete-config",
                         "message.max.bytes")
        await_configs(broker, [*which], {})
    everything = configs(broker, *one, "--all")
    assert everything["message.max.bytes"] == "1048588"
    assert everything["num.partitions"] == "2"


def test_console_producer_and_consumer_and_groups(broker: Broker, topic: str) -> None:
    """K1, K2, K3: what is typed is read in a group; the group is listed, described in all three
    ways, reset, and deleted.
    """
    run, group = broker.tools.run, f"group-of-{topic}"
    run("kafka-topics", "--create", "--topic", topic, "--partitions", "2")
    run("kafka-console-producer", "--topic", topic, "--reader-property", "parse.key=true",
        "--reader-property", "key.separator=:", stdin="a:1\nb:2\nc:3\nd:4\n")
    shown = run("kafka-console-consumer", "--topic", topic, "--from-beginning", "--max-messages",
                "4", "--timeout-ms", "30000", "--group", group,
                "--formatter-property", "print.key=true")
    assert sorted(shown.split("\n")) == ["", "a\t1", "b\t2", "c\t3", "d\t4"]

    groups = "kafka-consumer-groups"
    assert re.search(rf"^{group}\s+Empty", run(groups, "--list", "--state"), re.MULTILINE)
    assert re.search(rf"^{group}\s+Classic\s+consumer",
                     run("kafka-groups", "--list"), re.MULTILINE)
    shown = run(groups, "--describe", "--group", group)
    found = re.findall(rf"^{group}\s+{topic}\s+(\d)\s+(\d)\s+(\d)\s+0\s+-", shown, re.MULTILINE)
    assert [each[0] for each in found] == ["0", "1"]
    assert sum(int(each[1]) for each in found) == sum(int(each[2]) for each in found) == 4
    address = re.escape(broker.bootstrap)
    assert re.search(rf"{group}\s+{address}\s+\(1\)\s+-\s+Empty\s+0",
                     run(groups, "--describe", "--group", group, "--state"))
    assert run(groups, "--describe", "--group", group, "--members").split()[0] == "GROUP"

    reset = (groups, "--reset-offsets", "--group", group, "--topic", topic)
    assert len(re.findall(rf"{topic}\s+\d\s+0\b", run(*reset, "--to-earliest", "--execute"))) == 2
    shown = run(groups, "--describe", "--group", group)
    assert len(re.findall(rf"{topic}\s+\d\s+0\s+\d\s+\d\s+-", shown)) == 2, shown
    assert "Successful" in run(groups, "--delete-offsets", "--group", group, "--topic", topic)
    assert "was successful" in run(groups, "--delete", "--group", group)
    assert group not in run(groups, "--list")
    assert "GroupIdNotFoundException" in run(groups, "--describe", "--group", group)


def test_get_offsets_delete_records_and_log_dirs(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    """K1, K2, K5: offsets at the ends and by time, records cut, and sizes on the disk."""
    run = broker.tools.run
    run("kafka-topics", "--create", "--topic", topic, "--partitions", "2")
    fill(broker, topic, 10)

    def offsets(time: str) -> list[str]:
        return run("kafka-get-offsets", "--topic", topic, "--time", time).split()

    assert offsets("latest") == [f"{topic}:0:5", f"{topic}:1:5"]
    assert offsets("earliest") == [f"{topic}:0:0", f"{topic}:1:0"]
    assert offsets("0") == [f"{topic}:0:0", f"{topic}:1:0"]
    assert offsets("4102444800000") == []  # no record is that late
    assert run("kafka-get-offsets", "--topic-partitions", f"{topic}:1").split() == [f"{topic}:1:5"]

    plan = tmp_path / "delete.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [
        {"topic": topic, "partition": 0, "offset": 3},
        {"topic": topic, "partition": 1, "offset": -1}]}))
    shown = run("kafka-delete-records", "--offset-json-file", str(plan))
    assert re.findall(rf"partition: {topic}-(\d)\s+low_watermark: (\d)", shown) in (
        [("0", "3"), ("1", "5")], [("1", "5"), ("0", "3")])
    assert offsets("earliest") == [f"{topic}:0:3", f"{topic}:1:5"]

    shown = run("kafka-log-dirs", "--describe", "--topic-list", topic).splitlines()[-1]
    (found,) = json.loads(shown)["brokers"]
    (where,) = found["logDirs"]
    assert (found["broker"], where["error"]) == (1, None)
    assert sorted((each["partition"], each["offsetLag"], each["isFuture"], each["size"] > 100)
                  for each in where["partitions"]) == [
        (f"{topic}-0", 0, False, True), (f"{topic}-1", 0, False, True)]


def test_the_tools_that_describe_a_cluster(broker: Broker) -> None:
    """K1, K6: quorum, cluster id, end points, API versions; a preferred election where every
    leader is the preferred one.
    """
    run, program = broker.tools.run, broker.tools.program
    status = dict(re.findall(r"^(\w+):\s+(.*)$",
                             run("kafka-metadata-quorum", "describe", "--status"), re.MULTILINE))
    assert (status["LeaderId"], status["MaxFollowerLag"], status["CurrentObservers"]) == (
        "1", "0", "[]")
    assert [each["id"] for each in json.loads(status["CurrentVoters"])] == [1]
    shown = run("kafka-metadata-quorum", "describe", "--replication").splitlines()
    assert [line.split()[-1] for line in shown] == ["Status", "Leader"]

    at = ("--bootstrap-server", broker.bootstrap)
    shown = program("kafka-cluster", "cluster-id", *at).out
    assert shown.split(": ")[1].strip() == status["ClusterId"]
    shown = program("kafka-cluster", "list-endpoints", *at).out
    host, port = broker.bootstrap.split(":")
    assert shown.splitlines()[1].split()[:3] == ["1", host, port]
    usable = re.findall(r"(\w+)\(\d+\): \d+ to \d+ \[usable: (\d+)\]",
                        run("kafka-broker-api-versions"))
    assert {("Produce", "13"), ("Fetch", "18"), ("Metadata", "13"), ("JoinGroup", "9")} <= set(
        usable)
    run("kafka-leader-election", "--election-type", "preferred", "--all-topic-partitions")


def test_the_tools_that_measure(broker: Broker, topic: str) -> None:
    """K1, K2: producer, consumer and end to end; the verifiable producer and consumer."""
    run, program = broker.tools.run, broker.tools.program
    run("kafka-topics", "--create", "--topic", topic, "--partitions", "2")
    at = ("--bootstrap-server", broker.bootstrap)
    done = program("kafka-producer-perf-test", "--topic", topic, "--num-records", "5000",
                   "--record-size", "100", "--throughput", "-1", *at,
                   "--command-property", "acks=all")
    assert (done.code, re.findall(r"^(\d+) records sent", done.out, re.MULTILINE)[-1:]) == (
        0, ["5000"]), done
    shown = run("kafka-consumer-perf-test", "--topic", topic, "--num-records", "5000")
    header, numbers = (line.split(", ") for line in shown.strip().splitlines()[-2:])
    assert dict(zip(header, numbers, strict=True))["data.consumed.in.nMsg"] == "5000"
    done = program("kafka-e2e-latency", *at, "--topic", topic, "--num-records", "20",
                   "--producer-acks", "all", "--record-size", "100")
    assert (done.code, "Percentiles: 50th" in done.out) == (0, True), done

    run("kafka-topics", "--create", "--topic", f"{topic}-2", "--partitions", "2")
    said = [json.loads(line) for line in broker.tools.apart(
        "kafka-verifiable-producer", "--topic", f"{topic}-2", "--max-messages", "7").splitlines()]
    assert [each["name"] for each in said].count("producer_send_success") == 7
    said = [json.loads(line) for line in broker.tools.apart(
        "kafka-verifiable-consumer", "--topic", f"{topic}-2", "--group-id", f"g-{topic}",
        "--max-messages", "7", "--reset-policy", "earliest").splitlines()]
    assert sum(each["count"] for each in said if each["name"] == "records_consumed") == 7
    assert [each["success"] for each in said if each["name"] == "offsets_committed"][-1:] == [True]


def test_kafka_dump_log(broker: Broker, topic: str, tmp_path: Path) -> None:
    """K1, K9: Kafka's tool reads a segment of Kafka, and what `quipu log export` writes of ours:
    every record, and indexes that are sound.
    """
    broker.tools.run("kafka-topics", "--create", "--topic", topic, "--partitions", "2")
    fill(broker, topic, 40)
    if broker.quipu is not None:
        done = run_quipu("log", "export", "--force", "--to", str(tmp_path),
                         *map(str, broker.quipu.directory.glob(f"{topic}-0*")))
        assert done.code == 0, done.err
        (segment,) = tmp_path.glob("*-0*/*.log")
    else:
        assert broker.kafka is not None
        (segment,) = (broker.kafka.log_dir() / f"{topic}-0").glob("*.log")
    done = broker.tools.program("kafka-dump-log", "--files", str(segment), "--print-data-log",
                                "--deep-iteration")
    assert done.code == 0, done
    assert re.findall(r"\| offset: (\d+) .* key: (\d+) payload: (\d+)", done.out) == [
        (f"{place}", f"{2 * place}", f"{2 * place}") for place in range(20)], done.out
    for index in (segment.with_suffix(".index"), segment.with_suffix(".timeindex")):
        checked = broker.tools.program("kafka-dump-log", "--files", str(index),
                                       "--index-sanity-check")
        # a finished segment has no entry before the first 4 KiB, and its index may be empty
        assert checked.code == 0, checked
        assert re.search(r"passed sanity check|is empty", checked.out), checked
