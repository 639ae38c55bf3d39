"""Options and columns of rows that go into topics; writing itself is in test_datasource."""

import pytest
from pyspark.sql.types import DataType, IntegerType, StringType, StructField, StructType

from quipu.pipeline.reading.options import COLUMNS, BadOption
from quipu.pipeline.spark.data_source.columns import schema_of
from quipu.pipeline.spark.data_source.writer import producer_settings, write_options

TEXT, NUMBER = StringType(), IntegerType()
AT = {"kafka.bootstrap.servers": "h:1"}


def test_columns_and_settings() -> None:
    schema = schema_of(COLUMNS)
    options = write_options({**AT, "Topic": "t", "kafka.linger.ms": "7", "checkpointLocation": "x"},
                            schema, overwrite=False)
    assert options.topic == "t"
    assert options.columns == ("key", "value", "topic", "partition", "headers")
    assert dict(options.producer) == {"bootstrap.servers": "h:1", "linger.ms": "7"}


def test_settings_of_javas_client_become_librdkafkas() -> None:
    jaas = 'x.PlainLoginModule required username="u" password="p";'
    assert producer_settings({
        "bootstrap.servers": "h:1", "sasl.jaas.config": jaas, "ssl.truststore.location": "ca.pem",
        "ssl.truststore.type": "PEM", "ssl.keystore.location": "me.pem", "acks": "all",
    }) == {
        "bootstrap.servers": "h:1", "sasl.username": "u", "sasl.password": "p", "acks": "all",
        "ssl.ca.location": "ca.pem", "ssl.certificate.location": "me.pem",
        "ssl.key.location": "me.pem",
    }


@pytest.mark.parametrize(("columns", "options", "words"), [
    ({"value": TEXT}, {}, r"give the option topic, or a column topic"),
    ({"value": NUMBER}, {"topic": "t"}, "the column value must be string or binary, not int"),
    ({"value": TEXT, "headers": TEXT}, {"topic": "t"}, "headers must be array<struct<key:string,"),
    ({"valeu": TEXT}, {"topic": "t"}, "the column 'valeu' cannot be written; those that can"),
    ({"key": TEXT}, {"topic": "t"}, "a column value is needed"),
    ({"value": TEXT}, {"topic": "a b"}, "topic: topic name 'a b' may hold only"),
    ({"value": TEXT}, {"topik": "t"}, r"unknown option topik; did you mean topic\?"),
    ({"value": TEXT}, {"topic": "t", "kafka.key.serializer": "x"}, "key.serializer cannot be set"),
    ({"value": TEXT}, {"topic": "t", "kafka.sasl.jaas.config": "x"}, "sasl.jaas.config: must be"),
])
def test_mistakes(columns: dict[str, DataType], options: dict[str, str], words: str) -> None:
    """I12: told before anything is written."""
    schema = StructType([StructField(*each) for each in columns.items()])
    with pytest.raises(BadOption, match=words):
        write_options({**AT, **options}, schema, overwrite=False)


def test_a_topic_is_not_overwritten_and_a_cluster_is_named() -> None:
    schema = StructType([StructField("value", TEXT)])
    with pytest.raises(BadOption, match=r"a topic cannot be overwritten; use mode\('append'\)"):
        write_options({**AT, "topic": "t"}, schema, overwrite=True)
    with pytest.raises(BadOption, match=r"kafka.bootstrap.servers is missing"):
        write_options({"topic": "t"}, schema, overwrite=False)
