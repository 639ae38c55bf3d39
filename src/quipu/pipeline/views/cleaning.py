"""Old versions of a view deleted, with the files that only they have."""

import time
from pathlib import Path

from quipu.pipeline.tables import cleaning, commits
from quipu.pipeline.views import append_files, versions
from quipu.pipeline.views.versions import AppendTable
from quipu.pipeline.views.view_files import ViewFiles, manifest_at

KEEP = 20  # versions, besides those that readers and sinks need


def clean(files: ViewFiles, newest: int) -> None:
    """Delete versions of a view that are no longer needed, and the files that only they have."""
    oldest = files.oldest_needed(newest, KEEP)
    assert oldest < newest, (oldest, newest)  # the newest version is never deleted
    kept = [number for number in versions.numbers(files.versions) if number >= oldest]
    assert newest in kept, (newest, kept)
    versions.remove(files.versions, set(kept))
    known = [versions.read(files.versions, number) for number in kept]
    for source, source_input in enumerate(files.inputs.sources):
        if source_input.buckets:
            clean_table(source_input.directory, oldest)
        for directory, tables in (
            (source_input.rows, [each.appended.get(source, AppendTable()) for each in known]),
            (source_input.dead, [each.dead.get(source, AppendTable()) for each in known]),
        ):
            needed = {name for table in tables for name in table.file_names()}
            append_files.remove_unused(directory, needed, time.time_ns())
    if files.result is not None:
        clean_table(files.result[0], oldest)


def clean_table(directory: Path, oldest: int) -> None:
    """Delete the versions of a table by key that no version of the view from `oldest` on needs."""
    first = manifest_at(directory, oldest).version
    assert first <= oldest, (directory, first, oldest)
    keep = sum(number >= first for number in commits.versions(directory))
    if keep:
        cleaning.clean(directory, keep=keep)
