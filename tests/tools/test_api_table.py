"""docs/reference/apis.md says what the code does."""

import pytest

from quipu.broker.handlers import SUPPORTED
from quipu.wire.messages import REQUESTS
from tools import api_table


def test_the_page_names_every_api_that_is_served() -> None:
    """K11: key, name and versions, straight from the list that clients are given."""
    page = api_table.page()

    for key, (first, last) in SUPPORTED.items():
        name = REQUESTS[key].__name__.removesuffix("Request")
        versions = f"{first}-{last}" if first != last else str(first)
        assert f"| {key} | {name} | {versions} |" in page


def test_an_api_is_either_served_or_named_as_missing() -> None:
    """K11: the page leaves nothing out, and nothing is on both lists."""
    served, _, missing = api_table.page().partition("## Not served yet")
    apis = {key: name for part in api_table.MISSING.values() for key, name in part.items()}

    for key, name in apis.items():
        assert (f"| {key} | {name} |" in served) != (f"{name} ({key})" in missing)


def test_check_finds_a_page_that_is_out_of_date(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K11: `make check` fails until `make docs` has been run."""
    page = tmp_path_factory.mktemp("docs") / "apis.md"
    monkeypatch.setattr(api_table, "PAGE", page)

    monkeypatch.setattr("sys.argv", ["api_table.py", "--check"])
    assert api_table.main() == 1
    monkeypatch.setattr("sys.argv", ["api_table.py"])
    assert api_table.main() == 0
    monkeypatch.setattr("sys.argv", ["api_table.py", "--check"])
    assert api_table.main() == 0
    page.write_text("something else", encoding="utf-8")
    assert api_table.main() == 1
