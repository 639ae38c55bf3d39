"""The registry of batch types."""

import subprocess
import sys

import pytest

from quipu.model import batch_types
from quipu.model.batch_types import UnsetBatchType

TWO_OWNERS = """
from quipu.model import batch_types
batch_types.register(3, "mine", "somebody else", "claims the controller's number")
"""


def test_two_owners_of_one_integer_fail_at_import() -> None:
    """T3: model.B2: a second registration of a number fails at import, and names both owners."""
    done = subprocess.run(
        [sys.executable, "-c", TWO_OWNERS], capture_output=True, text=True, check=False
    )

    assert done.returncode != 0
    assert "batch type 3: somebody else registers it as mine" in done.stderr
    assert "controller owns it as controller" in done.stderr


@pytest.mark.parametrize("number", [0, -1, 256])
def test_a_number_that_is_no_type_is_refused(number: int) -> None:
    """T2: model.B1: 0 means unset and has no owner; a type fits in a byte."""
    with pytest.raises(ValueError, match="between 1 and 255"):
        batch_types.register(number, "nothing", "nobody", "cannot be")

    assert batch_types.find(number) is None


def test_the_registry_gives_each_subsystem_its_integer() -> None:
    """T3, T4: number, name, owner and visibility of every type; numbers are never reused."""
    table = [(info.number, info.name, info.owner, info.visible)
             for info in batch_types.registered()]

    assert table[:8] == [
        (1, "data", "broker", True),
        (2, "configuration", "raft, chain", False),
        (3, "controller", "controller", False),
        (4, "group", "broker", False),
        (5, "checkpoint", "storage", False),
        (6, "log_start", "storage", False),
        (7, "snapshot", "storage", False),
        (8, "node", "storage", False),
    ]
    assert [number for number, *_ in table] == sorted({number for number, *_ in table})


def test_only_data_is_visible_to_clients() -> None:
    """T3, T5: model.B3: one type takes up client offsets."""
    assert [info.number for info in batch_types.registered() if info.visible] == [batch_types.DATA]


@pytest.mark.parametrize(
    ("number", "want"), [(0, "unset(0)"), (1, "data"), (99, "unknown(99)"), (255, "unknown(255)")]
)
def test_every_byte_has_a_name_to_print(number: int, want: str) -> None:
    """T11: a type from a later version is described, not refused."""
    assert batch_types.describe(number) == want


def test_an_unset_type_is_refused_by_log_and_offset() -> None:
    """T1, T2: model.B1: the error says where the batch would have gone."""
    with pytest.raises(UnsetBatchType, match=r"orders-3: batch at offset 417 has type 0"):
        batch_types.require_set(0, "orders-3", 417)

    for number in range(1, 256):
        batch_types.require_set(number, "orders-3", 417)
