"""The catalog: kept, locked, private, and never overwritten when it is not understood."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from quipu.pipeline.catalog import (
    FILE,
    FORMAT,
    Catalog,
    CatalogEntry,
    CatalogInUse,
    CatalogUnreadable,
    CatalogUnwritable,
)
from quipu.pipeline.durable import temporary_for
from quipu.pipeline.sql.statements import ObjectKind

CONNECTION = CatalogEntry(ObjectKind.CONNECTION, "c", "CREATE CONNECTION c …")
SOURCE = CatalogEntry(ObjectKind.SOURCE, "s", "CREATE SOURCE s …", ("c",),
                      facts={"partitions": {"t": 2}})
VIEW = CatalogEntry(ObjectKind.VIEW, "v", "CREATE VIEW v …", ("s",), materialized=True)
SINK = CatalogEntry(ObjectKind.SINK, "k", "CREATE SINK k …", ("v",))
ALL = (CONNECTION, SOURCE, VIEW, SINK)


def fill(directory: Path) -> None:
    with Catalog.open(directory) as catalog:
        for entry in ALL:
            catalog.put(entry)


def test_what_was_put_is_there_after_a_restart(tmp_path: Path) -> None:
    """I13: sources, views, sinks and connections survive."""
    fill(tmp_path / "state")

    with Catalog.open(tmp_path / "state") as catalog:
        assert catalog.entries() == ALL
        assert catalog.find("s") == SOURCE
        assert catalog.find("nothing") is None
        assert catalog.entries(ObjectKind.VIEW) == (VIEW,)
        assert catalog.names()[ObjectKind.SINK] == ["k"]
        assert catalog.graph() == {"c": (), "s": ("c",), "v": ("s",), "k": ("v",)}


def test_dropping_is_all_or_nothing(tmp_path: Path) -> None:
    fill(tmp_path)
    with Catalog.open(tmp_path) as catalog:
        with pytest.raises(AssertionError, match="use objects that are dropped"):
            catalog.remove(["s"])
        catalog.remove(["k", "v", "s"])

    assert Catalog.read(tmp_path).entries() == (CONNECTION,)


def test_a_replaced_view_may_use_what_came_after_it(tmp_path: Path) -> None:
    fill(tmp_path)
    later = CatalogEntry(ObjectKind.SOURCE, "later", "…", ("c",))
    replaced = CatalogEntry(ObjectKind.VIEW, "v", "CREATE VIEW v … later", ("later",))
    with Catalog.open(tmp_path) as catalog:
        catalog.put(later)
        catalog.put(replaced)

    names = [entry.name for entry in Catalog.read(tmp_path).entries()]
    assert names.index("later") < names.index("v") < names.index("k")


def test_only_its_owner_can_read_the_file(tmp_path: Path) -> None:
    """Statements hold passwords."""
    fill(tmp_path)

    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


def test_one_process_writes_at_a_time(tmp_path: Path) -> None:
    """pipeline.C2."""
    with Catalog.open(tmp_path) as catalog:
        program = (
            "import sys\nfrom pathlib import Path\nfrom quipu.pipeline.catalog import Catalog\n"
            "print(len(Catalog.read(Path(sys.argv[1])).entries()))\n"
            "Catalog.open(Path(sys.argv[1]))")
        other = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False,
                               capture_output=True, text=True, timeout=60)
        catalog.put(CONNECTION)

    assert other.stdout == "0\n"
    assert f"is in use by process {os.getpid()} (" in other.stderr
    fill(tmp_path)


def test_the_lock_of_a_process_that_was_killed_is_free(tmp_path: Path) -> None:
    program = ("import os, signal, sys\nfrom pathlib import Path\n"
               "from quipu.pipeline.catalog import Catalog\nc = Catalog.open(Path(sys.argv[1]))\n"
               "os.kill(os.getpid(), signal.SIGKILL)")
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False, timeout=60)

    fill(tmp_path)


def test_one_process_does_not_open_it_twice(tmp_path: Path) -> None:
    with Catalog.open(tmp_path), pytest.raises(CatalogInUse, match="in use by process"):
        Catalog.open(tmp_path)
    Catalog.open(tmp_path).close()


GOOD = {"kind": "SOURCE", "name": "s", "text": "", "uses": [], "materialized": False, "facts": {}}
BAD = {
    "no JSON": b"{",
    "cut short": b'{"format": 1, "entries": [{"kind"',
    "another thing": b"[1]",
    "no format": b'{"entries": []}',
    "later": json.dumps({"format": FORMAT + 1, "entries": []}).encode(),
    "no entries": b'{"format": 1}',
    "an odd entry": b'{"format": 1, "entries": [7]}',
    "an odd kind": json.dumps({"format": 1, "entries": [{**GOOD, "kind": "TABLE"}]}).encode(),
    "odd uses": json.dumps({"format": 1, "entries": [{**GOOD, "uses": [7]}]}).encode(),
    "no text": json.dumps({"format": 1, "entries": [{**GOOD, "text": 7}]}).encode(),
    "missing uses": json.dumps({"format": 1, "entries": [{**GOOD, "uses": ["x"]}]}).encode(),
    "twice": json.dumps({"format": 1, "entries": [GOOD, GOOD]}).encode(),
    "nested": b"[" * 100_000,
}


@pytest.mark.parametrize("why", BAD)
def test_what_is_not_understood_is_left_alone(tmp_path: Path, why: str) -> None:
    """pipeline.C3."""
    path = tmp_path / FILE
    path.write_bytes(BAD[why])
    with pytest.raises(CatalogUnreadable, match="the file is unchanged"):
        Catalog.open(tmp_path)

    assert path.read_bytes() == BAD[why]
    path.unlink()
    fill(tmp_path)


def test_a_write_that_fails_changes_nothing(tmp_path: Path) -> None:
    """pipeline.C1."""
    with Catalog.open(tmp_path) as catalog:
        catalog.put(CONNECTION)
        in_the_way = temporary_for(tmp_path / FILE)
        in_the_way.mkdir()
        with pytest.raises(CatalogUnwritable, match="nothing has changed"):
            catalog.put(SOURCE)

        assert catalog.entries() == (CONNECTION,)
        in_the_way.rmdir()
        catalog.put(SOURCE)
    assert Catalog.read(tmp_path).entries() == (CONNECTION, SOURCE)


def test_a_directory_that_cannot_be_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CatalogUnwritable, match="cannot be written"):
        Catalog.open(tmp_path / "file")
    (tmp_path / "other" / FILE).mkdir(parents=True)
    with pytest.raises(CatalogUnreadable, match="cannot be read"):
        Catalog.read(tmp_path / "other")


def test_what_was_opened_to_look_at_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="read-only"):
        Catalog.read(tmp_path).put(CONNECTION)
