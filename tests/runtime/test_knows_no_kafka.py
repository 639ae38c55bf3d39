"""The doors to the world know nothing of Kafka: neither its error codes nor a broker's settings."""

import ast
from pathlib import Path

import pytest

import quipu.runtime

ROOM = Path(quipu.runtime.__file__).parent
MODULES = sorted(path.relative_to(ROOM).as_posix() for path in ROOM.rglob("*.py"))
FORBIDDEN = {"Code", "RequestError", "BrokerSettings", "TopicSettings"}


def names_used(path: Path) -> set[str]:
    """Every name that a module imports, reads or mentions as an attribute."""
    used = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Name):
            used.add(node.id)
        elif isinstance(node, ast.Attribute):
            used.add(node.attr)
        elif isinstance(node, ast.ImportFrom):
            used.update(alias.name for alias in node.names)
    return used


@pytest.mark.parametrize("module", MODULES)
def test_no_error_code_and_no_settings(module: str) -> None:
    """Errors have kinds and classes; `broker/error_codes.py` gives them their codes."""
    used = names_used(ROOM / module)
    assert not used & FORBIDDEN, f"{module} uses {sorted(used & FORBIDDEN)}"
    assert "code" not in used, f"{module} reads or sets the code of an error"


def test_the_check_sees_what_it_forbids(tmp_path: Path) -> None:
    """A module that imports, names or reads what is forbidden is found."""
    bad = tmp_path / "bad.py"
    bad.write_text("from quipu.model.errors import Code\ndef f(e):\n    return e.code\n")
    assert {"Code", "code"} <= names_used(bad)
