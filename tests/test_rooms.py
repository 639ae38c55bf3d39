"""The repository keeps the rules of tools/rooms.py, each of which can fail (tests/tools)."""

from tools.rooms import breaches, rooms
from tools.tidy import sources


def test_rooms_have_maps_and_invariants_are_kept_and_tested() -> None:
    """Maps, invariants, files that are named, docstrings; one line per breach."""
    found = [str(breach) for breach in breaches(list(sources()))]

    assert not found, "\n" + "\n".join(found)


def test_all_rooms_are_looked_at() -> None:
    """A rule that sees no room would pass for ever."""
    paths = {room.path for room in rooms(sources())}

    assert {"src/quipu/__init__.py", "src/quipu/storage/__init__.py",
            "src/quipu/broker/partitions/__init__.py",
            "src/quipu/pipeline/spark/views/__init__.py"} <= paths
