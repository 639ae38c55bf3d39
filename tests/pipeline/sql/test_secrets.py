"""Passwords are not shown, in whatever they are written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quipu.pipeline.spark.session.supervisor import summary
from quipu.pipeline.sql.secrets import mask_addresses, mask_text

WORDS = [
    "postgresql://me:hunter2@h:5432/d", "postgresql://me:hun@ter2@h/d", "http://me:hunt/er2@h:8081",
    "https://hunter2@h/x", "jdbc:postgresql://h/d?user=me&password=hunter2&ssl=true",
    "host=h user=me password=hunter2 dbname=d", "sasl.password=hunter2, x=1",
    "{'sasl.password': 'hunter2', 'x': 1}", "s3://b/k?X-Amz-Signature=hunter2",
    "token=hunter2;x", "basic.auth.user.info=me:hunter2", "AWS_SECRET=hunter2",
    'Failed: {"password":"hunter2"}', "access_key=hunter2",
    "me:hunter2@h:9092", "[me:hunter2@h]:9092", "bootstrap.servers=me:hun:t@er2@h:1,other:1",
    "abfss://b/k?sv=2024&sig=hunter2&se=x",
]


@pytest.mark.parametrize("text", WORDS)
def test_errors_and_progress_show_no_password(text: str) -> None:
    """K8: of addresses, of options, of key=value texts; what is around it stays."""
    for message in (text, f"cannot reach {text}: refused", f"'{text}' and so on"):
        shown = mask_addresses(message)
        assert "hunter2" not in shown
        assert "er2" not in shown
        assert "***" in shown
        assert mask_addresses(shown) == shown
        assert "hunter2" not in summary(RuntimeError(message))
    assert mask_addresses(f"cannot reach {text}: refused").startswith("cannot reach ")


@pytest.mark.parametrize("text", [
    "no broker responds: 127.0.0.1:9092", "http://h:8081/subjects/a/versions/1",
    "the token is expired", "password is missing: give one", "a@b.c wrote", "x = 1",
    "at 12:30 by a@b.c", "design=5"])
def test_what_is_no_secret_is_shown(text: str) -> None:
    """I19: errors stay readable."""
    assert mask_addresses(text) == text


@pytest.mark.parametrize("statement", [
    "CREATE SINK k FROM v INTO POSTGRES 'postgresql://me:hunter2@h/d'",
    "CREATE SOURCE s FROM KAFKA BROKER 'b' TOPIC 't' FORMAT AVRO USING 'http://me:hunter2@r:8081'",
    "CREATE CONNECTION c TO KAFKA (BROKER 'b:1', SASL PASSWORD = 'hunter2')",
    "CREATE CONNECTION c TO KAFKA (BROKERS ('me:hunter2@b:1', 'c:1'))",
    "CREATE SINK k FROM v INTO DELTA 's3://b/k?sig=hunter2'",
    "SELECT * FROM t WHERE u = 'https://hunter2@h/x'", "SELECT 'x?token=hunter2'"])
def test_statements_in_histories_and_jobs_show_no_password(statement: str) -> None:
    """K8: the history of the shell, and the descriptions of Spark's jobs."""
    assert "hunter2" not in mask_text(statement)


def test_errors_give_no_orders_to_a_terminal() -> None:
    """K8: whatever a peer's error says."""
    said = "\x1b[31mred\x1b[0m\x1b[2J\x07\x9b5n \u202eafter\nnext"
    assert summary(RuntimeError(said)) == "red  5n  after\nnext"


@given(st.text(max_size=200))
def test_masking_never_fails(text: str) -> None:
    """K8: whatever an error says."""
    assert isinstance(mask_addresses(text), str)
