"""A Delta table as the target of a sink; each version is written once.

The table has the rows of the view.  Rows of a view that only grows are appended; of a view that can
remove rows, each version replaces the one before it, in one commit, so that readers of the table
always see one whole version.  The commit has the sink and the version (Delta's application
transactions), so after a crash the table itself has the last written version (pipeline.S1).  A
column that the table lacks is added.

Replacing costs as much as the table is large; Delta's MERGE by key is no cheaper, because it
rewrites whole files, too.  The files of the previous version are kept for its readers; files older
than the table's retention (by default a week) are deleted.
"""

from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import TableNotFoundError

from quipu.pipeline.views.changes import DIFF, ViewChange

VACUUM_EVERY = 50  # versions


class DeltaTarget:
    """A Delta table; `options` are those of the object store, if the table is in one."""

    def __init__(self, name: str, uri: str, *, only_grows: bool, options: dict[str, str]) -> None:
        self._application = f"quipu-{name}"
        self._uri = uri
        self._only_grows = only_grows
        self._options = options
        self._replaced = 0  # versions since old files were deleted
        if "://" not in uri:
            Path(uri).parent.mkdir(parents=True, exist_ok=True)

    @property
    def wants_snapshots(self) -> bool:
        """Is each version written as a whole, instead of its changes?"""
        return not self._only_grows

    def position(self) -> int | None:
        """The last version that was written; None before the first."""
        try:
            table = DeltaTable(self._uri, storage_options=self._options)
        except TableNotFoundError:
            return None
        version = table.transaction_version(self._application)
        return None if version is None else int(version)

    def write(self, change: ViewChange) -> None:
        """Write a version in one commit."""
        reader = pa.RecordBatchReader.from_batches(
            change.schema, (batch.drop_columns([DIFF]) for batch in change.batches)
        )
        write_deltalake(
            self._uri, reader, mode="append" if self._only_grows else "overwrite",
            schema_mode="merge", storage_options=self._options,
            commit_properties=CommitProperties(
                app_transactions=[Transaction(self._application, change.version)]
            ),
        )
        self._replaced += not self._only_grows
        if self._replaced == VACUUM_EVERY:
            self._replaced = 0
            DeltaTable(self._uri, storage_options=self._options).vacuum(dry_run=False)

    def close(self) -> None:
        """Nothing is held open between versions."""
