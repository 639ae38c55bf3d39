"""The page of limits names settings that there are, with the defaults that they have."""

import re
from pathlib import Path

import pytest

from quipu.broker.observing import metrics
from quipu.model.settings import BROKER
from quipu.model.settings_types import render

PAGE = Path(__file__).parents[2] / "docs" / "operating" / "limits.md"
ROW = re.compile(r"^\| [^|]+ \| `([a-z.]+)` \| ([^|]*?) \|", re.MULTILINE)
ROWS = ROW.findall(PAGE.read_text())


def test_there_are_rows() -> None:
    assert len(ROWS) >= 30


@pytest.mark.parametrize(("name", "default"), ROWS)
def test_a_limit_is_a_setting_with_this_default(name: str, default: str) -> None:
    """K8: every bound is listed with its setting."""
    row = BROKER[name]
    assert row.kind.low is not None
    if default == "half":
        assert row.default is None
    else:
        assert default.partition(",")[0] == render(row.default)


def test_what_it_is_counted_in_is_a_metric() -> None:
    """K9: the names of metrics on the page are those that a node shows."""
    shown = metrics.reference()
    for name in re.findall(r"`(quipu_[a-z_]+)`", PAGE.read_text()):
        assert f"`{name}`" in shown, name
