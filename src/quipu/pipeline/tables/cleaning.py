"""Cleaning: removes old versions, then files that no version needs.

    clean(directory, keep=n)      keeps the newest n versions

Files of versions after the newest one are never removed: a merge may be writing them.  Neither are
files whose names have no version.  All other files that no kept version refers to were left by a
crash or a lost attempt.  Manifests are removed before the files that they name, so an existing
manifest can always be read.

Not here: which versions are still read, which the caller knows.
"""

from pathlib import Path

from quipu.pipeline.durable import TEMPORARY, flush_directory
from quipu.pipeline.tables.commits import manifest, versions, versions_directory
from quipu.pipeline.tables.files import version_of
from quipu.pipeline.tables.store import files_directory


def clean(directory: Path, *, keep: int) -> int:
    """Remove all versions but the newest `keep`, and unneeded files; returns how many files."""
    assert keep >= 1, keep
    known = versions(directory)
    if not known:
        return 0
    needed: set[str] = set()
    for version in known[-keep:]:
        needed |= manifest(directory, version).files()
    for version in known[:-keep]:
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
