"""`quipu bench placement`: managed placement alone, here on small clusters."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from quipu.bench.errors import BenchError
from quipu.bench.placement.command import placement
from quipu.bench.placement.events import EVENTS, Size, measure
from quipu.bench.placement.model import Moves, PlacementModel


def test_each_event_moves_what_it_must_and_no_more() -> None:
    """D19, D34: one replica of each partition for a rack; nothing but the operator's own moves."""
    costs = measure(Size(brokers=30, racks=5, partitions=600))
    assert [each.event for each in costs] == list(EVENTS)
    created, lost, returned, drained, hot = (each.moves for each in costs)
    assert created == Moves(5 * 600, 600, 1)
    assert lost == Moves(600, 120, 2)  # leaders of that rack: a fifth
    assert returned == Moves(600, 0, 2)
    assert (drained.replicas, drained.passes) == (2 * 100, 3)  # each is added, then removed
    assert drained.leaders <= 100
    assert (hot.replicas, hot.passes) == (2 * 60, 1)  # half of 120, and no step of the planner
    assert [each.spread for each in costs[:4]] == [0] * 4
    assert all(each.peak_bytes > 0 for each in costs)


def test_racks_of_different_sizes() -> None:
    """D34: partitions are hardly ever alike then."""
    costs = measure(Size(brokers=17, racks=5, partitions=300))
    assert [each.moves.replicas for each in costs[:3]] == [1500, 300, 300]
    assert all(each.spread <= 1 for each in costs[:4])


def test_partitions_that_are_placed_alike_share_memory() -> None:
    """D34: a million partitions have a few thousand different placements."""
    model = PlacementModel(30, 3)
    model.create(3000)
    assert len({id(replicas) for replicas in model.replicas}) <= 30 * 2  # two ways each


def test_the_command_measures_several_sizes_and_draws(tmp_path: Path) -> None:
    """D34: one JSON object, with the machine; and a picture of the growth."""
    done = subprocess.run(
        [sys.executable, "-m", "quipu", "bench", "placement", "--brokers", "40", "--racks", "4",
         "--partitions", "400", "--json", "--plot", str(tmp_path / "growth.svg")],
        capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [row["partitions"] for row in found["rows"][::len(EVENTS)]] == [40, 100, 400]
    assert {row["event"] for row in found["rows"]} == set(EVENTS)
    assert found["machine"]["cores"] >= 1
    assert (tmp_path / "growth.svg").stat().st_size > 0


def test_a_rack_needs_brokers_to_lose(tmp_path: Path) -> None:
    """D34: refused before anything is measured, as is a picture that could not be drawn."""
    with pytest.raises(BenchError, match="3 in each rack"):
        placement(brokers=5, racks=2, partitions=10)
    with pytest.raises(BenchError, match="must end in"):
        placement(brokers=6, racks=2, partitions=10, plot=tmp_path / "growth.txt")
