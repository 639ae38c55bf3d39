"""Cleaning: versions that nobody needs go, then files that no version needs.

    clean(directory, keep=n, now_ms=…)      keeps the newest n versions and those that are held
    with hold(directory, version, …): …     a reader that takes its time holds what it reads

Files that belong to versions after the newest one are never touched: a merge may be writing them.
So are files of no version at all.  Everything else that no kept version refers to is what a crash
or a lost attempt has left.  Manifests go before the files that they name, so a manifest that is
there can always be read.

A hold is a file; a reader that died leaves it behind, so it counts for `HOLD_MS` only, unless the
reader renews it.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quipu.pipeline.tables.commits import manifest, versions, versions_directory
from quipu.pipeline.tables.contract import UnknownVersion
from quipu.pipeline.tables.files import TEMPORARY, flush_directory, version_of
from quipu.pipeline.tables.store import files_directory

HOLD_MS = 3_600_000


def clean(directory: Path, *, keep: int, now_ms: int) -> int:
    """Drop versions but the newest `keep`, and files nobody needs; how many files went."""
    assert keep >= 1, keep
    known = versions(directory)
    if not known:
        return 0
    held = _held(directory, now_ms)
    kept = [version for version in known if version in held or version in known[-keep:]]
    needed: set[str] = set()
    for version in kept:
        needed |= manifest(directory, version).files()
    for version in known:
        if version not in kept:
            (versions_directory(directory) / f"{version:020d}.json").unlink(missing_ok=True)
    flush_directory(versions_directory(directory))  # never a manifest without its files
    left = [*versions_directory(directory).glob(f"*{TEMPORARY}"),
            *(path for path in files_directory(directory).iterdir() if path.name not in needed)]
    gone = 0
    for path in left:
        made_in = version_of(path.name)
        if made_in is not None and made_in <= known[-1]:
            path.unlink(missing_ok=True)
            gone += 1
    return gone


@contextmanager
def hold(directory: Path, version: int, *, name: str, now_ms: int) -> Iterator[None]:
    """Keep a version while it is read; `name` tells holders apart."""
    home = _holds(directory)
    home.mkdir(exist_ok=True)
    path = home / f"{version}-{name}.hold"
    path.write_text(json.dumps({"version": version, "until_ms": now_ms + HOLD_MS}))
    try:
        if version not in versions(directory):
            raise UnknownVersion(f"{directory}: version {version} is not kept")
        yield
    finally:
        path.unlink(missing_ok=True)


def _holds(directory: Path) -> Path:
    return directory / "holds"


def _held(directory: Path, now_ms: int) -> set[int]:
    found: set[int] = set()
    for path in _holds(directory).glob("*.hold"):
        try:
            wanted = json.loads(path.read_text())
        except (OSError, ValueError):
            continue  # about to be written, or just gone
        if wanted["until_ms"] >= now_ms:
            found.add(wanted["version"])
        else:
            path.unlink(missing_ok=True)
    return found
