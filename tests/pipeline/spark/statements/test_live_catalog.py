"""A state whose objects cannot all be planned any more."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from quipu.pipeline.spark.statements.pipeline import connect
from quipu.pipeline.sql.errors import SqlError
from tests.pipeline.spark.broker import Broker


def test_what_cannot_be_planned_any_more_is_left_aside(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """I13, I19: a pattern of old, which RE2 does not take: it can be dropped, the rest goes on."""
    topic = broker.topic()
    broker.send(topic, ":ab")
    kafka = f"FROM KAFKA BROKER '{broker.bootstrap}' TOPIC '{topic}'"
    with connect(spark, state=tmp_path / "state", resume=False) as pipeline:
        pipeline.execute(f"CREATE SOURCE old {kafka} FORMAT REGEX '(?P<x>a)b'")
        pipeline.execute(f"CREATE SOURCE good {kafka} FORMAT TEXT")
        pipeline.execute("CREATE VIEW v AS SELECT x FROM old")
    catalog = tmp_path / "state" / "catalog.json"
    text = catalog.read_text()
    assert "(?P<x>a)b" in text
    catalog.write_text(text.replace("(?P<x>a)b", "(?P<x>a)(?=b)"))
    with connect(spark, state=tmp_path / "state") as pipeline:
        found: Any = pipeline.execute("SELECT * FROM good")
        assert [tuple(row) for row in found.collect()] == [("ab",)]
        for query in ("SELECT * FROM old", "SELECT * FROM v"):
            with pytest.raises(SqlError, match=r"cannot be used: .*"):
                pipeline.execute(query)
        pipeline.execute("DROP SOURCE old CASCADE")
        pipeline.execute(f"CREATE SOURCE old {kafka} FORMAT REGEX '(?P<x>a)b'")
        found = pipeline.execute("SELECT x FROM old")
        assert [tuple(row) for row in found.collect()] == [("a",)]
