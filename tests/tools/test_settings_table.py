"""The page of settings is what the tables say."""

import sys

import pytest

from quipu.model.settings import OWN_BROKER, OWN_TOPIC
from tools import settings_table


def test_the_page_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    """K11: generated from the code, and committed."""
    monkeypatch.setattr(sys, "argv", ["settings_table.py", "--check"])

    assert settings_table.main() == 0


def test_every_setting_has_its_row() -> None:
    page = settings_table.page()

    for name in (*OWN_BROKER, *OWN_TOPIC):
        assert f"| `{name}`" in page


def test_a_page_that_lags_behind_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path, capsys: pytest.CaptureFixture[str]  # noqa: ANN001
) -> None:
    """K11: --check changes nothing and says what to do."""
    old = tmp_path / "settings.md"
    old.write_text("old")
    monkeypatch.setattr(settings_table, "PAGE", old)
    monkeypatch.setattr(sys, "argv", ["settings_table.py", "--check"])

    assert settings_table.main() == 1
    assert "make docs" in capsys.readouterr().err
    assert old.read_text() == "old"
