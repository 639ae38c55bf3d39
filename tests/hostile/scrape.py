"""What a running node says about itself: its metrics, as numbers."""

import time
import urllib.request
from collections.abc import Callable

from tests.harness.node import RunningNode


def metrics(node: RunningNode) -> dict[str, float]:
    """Every sample by its name and labels, as they are written."""
    with urllib.request.urlopen(f"{node.http}/metrics", timeout=20) as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, _, value in
            (line.rpartition(" ") for line in lines if not line.startswith("#"))}


def await_metric(
    node: RunningNode, name: str, is_fine: Callable[[float], bool], *, seconds: float = 30.0
) -> float:
    """The value of a metric once it is fine; raises if it does not become so."""
    deadline = time.monotonic() + seconds
    while True:
        value = metrics(node).get(name, 0.0)
        if is_fine(value):
            return value
        assert time.monotonic() < deadline, f"{name} is {value}"
        time.sleep(0.05)
