"""Tests of other folders that are run here, too: their fixtures say on which server."""

import inspect
from collections.abc import Container
from types import ModuleType


def inherited(module: ModuleType, fixture: str, *, but: Container[str] = ()) -> dict[str, object]:
    """The tests of a module that take a fixture, by name."""
    found = {name: test for name, test in vars(module).items()
             if name.startswith("test_") and name not in but
             and fixture in inspect.signature(test).parameters}
    assert found, f"no test of {module.__name__} takes {fixture}"
    return found
