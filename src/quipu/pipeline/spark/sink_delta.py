"""Rows into a Delta table, each version once.

The table holds what the view holds.  A view that only grows is appended to; of one that takes rows
back, a version replaces the one before it, in one commit, so that readers of the table always see
one version, whole.  The commit names the sink and the version (Delta's application transactions):
after a crash the table itself says what it has.  A column that the table does not know is added.

Replacing costs what the table is large; Delta's MERGE by key is no cheaper, because the file that
has a key is written anew, too.  The files of the version before stay for whoever still reads them;
those that are older than the table's retention (a week, unless it says otherwise) are taken away.
"""

from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import TableNotFoundError

from quipu.pipeline.spark.following import Step
from quipu.pipeline.spark.relations import DIFF

VACUUM_EVERY = 50  # versions


class DeltaTarget:
    """See above; `options` are those of the object store, if the table is in one."""

    def __init__(self, name: str, uri: str, *, only_grows: bool, options: dict[str, str]) -> None:
        self._application = f"quipu-{name}"
        self._uri = uri
        self._only_grows = only_grows
        self._options = options
        self._replaced = 0  # versions since files were taken away
        if "://" not in uri:
            Path(uri).parent.mkdir(parents=True, exist_ok=True)

    @property
    def wants_snapshots(self) -> bool:
        """Is a version written as all it holds, instead of what has changed?"""
        return not self._only_grows

    def position(self) -> int | None:
        """The last version that was written; None before the first."""
        try:
            table = DeltaTable(self._uri, storage_options=self._options)
        except TableNotFoundError:
            return None
        version = table.transaction_version(self._application)
        return None if version is None else int(version)

    def write(self, step: Step) -> None:
        """Write a version in one commit."""
        reader = pa.RecordBatchReader.from_batches(
            step.schema, (batch.drop_columns([DIFF]) for batch in step.batches)
        )
        write_deltalake(
            self._uri, reader, mode="append" if self._only_grows else "overwrite",
            schema_mode="merge", storage_options=self._options,
            commit_properties=CommitProperties(
                app_transactions=[Transaction(self._application, step.version)]
            ),
        )
        self._replaced += not self._only_grows
        if self._replaced == VACUUM_EVERY:
            self._replaced = 0
            DeltaTable(self._uri, storage_options=self._options).vacuum(dry_run=False)

    def close(self) -> None:
        """Nothing is held open between versions."""
