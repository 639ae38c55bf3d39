"""Which objects a query reads, what depends on what, and what is dropped with what."""

import pytest

from quipu.pipeline.plan.views import dropped, refuse_cycle, used
from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.statements import Name


def test_our_objects_are_found_whatever_their_case() -> None:
    assert used("SELECT * FROM ORDERS, elsewhere, Orders", ["orders", "totals"]) == ("orders",)


GRAPH = {"s": (), "v": ("s",), "w": ("v", "s"), "sink": ("w",), "other": ()}


def test_a_view_does_not_read_itself() -> None:
    refuse_cycle(Name("new"), ["w"], GRAPH)
    with pytest.raises(SqlError, match="v would read itself: v reads w reads v"):
        refuse_cycle(Name("v"), ["w"], GRAPH)
    with pytest.raises(SqlError, match="x would read itself: x reads x"):
        refuse_cycle(Name("x"), ["x"], GRAPH)


def test_what_is_needed_is_not_dropped() -> None:
    """I13: unless CASCADE says so; then users go first."""
    assert dropped(Name("other"), GRAPH, cascade=False) == ("other",)
    assert dropped(Name("s"), GRAPH, cascade=True) == ("sink", "w", "v", "s")
    with pytest.raises(SqlError, match="s is needed by sink, v, w"):
        dropped(Name("s"), GRAPH, cascade=False)
