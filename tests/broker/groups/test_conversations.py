"""Conversations with a group, as text: golden/*.txt.  UPDATE_GOLDEN=1 writes them anew."""

import os
from pathlib import Path

import pytest

from tests.broker.groups.conversation import replay

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.txt"))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_conversation_goes_as_written(path: Path) -> None:
    """K3: members come, go, bounce, lead and are slow; the results are the golden ones."""
    want = path.read_text()
    got = replay(path)
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(got)
    else:
        assert got == want
