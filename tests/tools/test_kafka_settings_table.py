"""The page of Kafka's settings is what the tables say."""

import sys

import pytest

from quipu.model.kafka_settings import EARLIER_BROKER, KAFKA_BROKER, KAFKA_TOPIC
from tools import kafka_settings_table


def test_the_page_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    """K11: generated from the code, and committed."""
    monkeypatch.setattr(sys, "argv", ["kafka_settings_table.py", "--check"])

    assert kafka_settings_table.main() == 0


def test_every_setting_has_its_row_and_a_reason_where_it_is_not_honoured() -> None:
    """K5, K11: what becomes of it, and why."""
    page = kafka_settings_table.page()

    for name in (*KAFKA_BROKER, *KAFKA_TOPIC, *EARLIER_BROKER):
        assert f"| `{name}` |" in page
    for line in page.splitlines():
        if "| no effect |" in line or "| refused |" in line:
            assert len(line.split(" | ")[-1]) > 10, line
