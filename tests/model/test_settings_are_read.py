"""Each setting is read by something, or says that it has no effect."""

import ast
import dataclasses
from pathlib import Path

import pytest

import quipu
from quipu.model.broker_settings import BrokerSettings
from quipu.model.settings import BROKER, TOPIC
from quipu.model.settings_types import Setting, attribute_name, render

SOURCE = Path(quipu.__file__).parent
MODEL = SOURCE / "model"


def read_in(path: Path) -> set[str]:
    """Names of all attributes that a module reads."""
    return {node.attr for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)}


# The tables themselves read all of them; what is made of them elsewhere in model counts.
TABLES = {*MODEL.glob("*settings*.py")}
READ = set().union(*(read_in(path) for path in SOURCE.rglob("*.py") if path not in TABLES))


def read_by_properties() -> set[str]:
    """What properties of the table read, such as `own_id`, if those are read in turn."""
    tree = ast.parse((MODEL / "broker_settings.py").read_text())
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name in READ:
            found |= {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}
    return found


def has_one_value(row: Setting) -> bool:
    """Whether the default is all that is allowed: then there is nothing to read."""
    return row.kind.allowed == render(row.default)


@pytest.mark.parametrize("name", TOPIC)
def test_a_topic_setting_is_read_or_says_that_it_is_not(name: str) -> None:
    """model.C1: a setting is read by something, or says why not."""
    is_read = attribute_name(name) in READ or has_one_value(TOPIC[name])
    assert is_read or TOPIC[name].ignored, f"{name} is read by nothing"


@pytest.mark.parametrize("name", BROKER)
def test_a_broker_setting_is_read_or_says_that_it_is_not(name: str) -> None:
    """model.C1: a topic's setting whose default it is counts, if that is read."""
    heirs = [topic for topic, row in TOPIC.items() if name in row.broker]
    is_read = attribute_name(name) in READ | read_by_properties() or any(
        attribute_name(topic) in READ or TOPIC[topic].ignored for topic in heirs)
    is_read = is_read or has_one_value(BROKER[name])
    assert is_read or BROKER[name].ignored, f"{name} is read by nothing"


def test_a_setting_that_nothing_reads_would_be_found() -> None:
    """The scan sees attributes, and no more than that."""
    fields = {each.name for each in dataclasses.fields(BrokerSettings)}
    assert "peer_request_timeout_ms" in READ & fields
    assert "peer_request_patience_ms" not in READ
    assert len(READ & fields) > 60
