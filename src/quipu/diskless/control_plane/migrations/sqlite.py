"""The schema of a control plane in a SQLite file."""

from typing import Final

from quipu.diskless.control_plane.migrations import Migration

_TABLES: Final = (
    # A topic that was deleted stays, so that nobody creates it again (diskless.C8).
    """
    CREATE TABLE diskless_topics (
        topic_id TEXT NOT NULL PRIMARY KEY,
        name TEXT NOT NULL,
        partition_count INTEGER NOT NULL,
        deleted_ms INTEGER) WITHOUT ROWID
    """,
    """
    CREATE TABLE diskless_logs (
        log_id INTEGER PRIMARY KEY,
        topic_id TEXT NOT NULL,
        partition INTEGER NOT NULL,
        log_start INTEGER NOT NULL DEFAULT 0,
        diskless_start INTEGER NOT NULL DEFAULT 0,
        high_watermark INTEGER NOT NULL DEFAULT 0,
        size INTEGER NOT NULL DEFAULT 0,
        last_run INTEGER NOT NULL DEFAULT 0,
        UNIQUE (topic_id, partition))
    """,
    """
    CREATE TABLE diskless_objects (
        object_id INTEGER PRIMARY KEY,
        object_key TEXT NOT NULL UNIQUE,
        uploader INTEGER NOT NULL,
        size INTEGER NOT NULL,
        live_size INTEGER NOT NULL,
        run_count INTEGER NOT NULL,
        committed_ms INTEGER NOT NULL,
        marked_ms INTEGER,
        outcomes BLOB NOT NULL)
    """,
    """
    CREATE INDEX diskless_objects_marked ON diskless_objects (marked_ms, object_key)
    WHERE marked_ms IS NOT NULL
    """,
    """
    CREATE INDEX diskless_objects_in_use ON diskless_objects (committed_ms, object_key)
    WHERE marked_ms IS NULL
    """,
    # run_number and node_max: see time_index.py; age_ms: see commit_plan.py.
    """
    CREATE TABLE diskless_runs (
        log_id INTEGER NOT NULL,
        end_offset INTEGER NOT NULL,
        base_offset INTEGER NOT NULL,
        object_id INTEGER NOT NULL,
        position INTEGER NOT NULL,
        size INTEGER NOT NULL,
        batch_count INTEGER NOT NULL,
        max_timestamp INTEGER NOT NULL,
        age_ms INTEGER NOT NULL,
        run_number INTEGER NOT NULL,
        node_max INTEGER NOT NULL,
        PRIMARY KEY (log_id, end_offset)) WITHOUT ROWID
    """,
    "CREATE INDEX diskless_runs_number ON diskless_runs (log_id, run_number)",
    "CREATE INDEX diskless_runs_object ON diskless_runs (object_id, position)",
    """
    CREATE TABLE diskless_producers (
        log_id INTEGER NOT NULL,
        producer_id INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        last_timestamp INTEGER NOT NULL,
        last_commit_ms INTEGER NOT NULL,
        batches BLOB NOT NULL,
        PRIMARY KEY (log_id, producer_id)) WITHOUT ROWID
    """,
    "CREATE INDEX diskless_producers_idle ON diskless_producers (last_commit_ms)",
    """
    CREATE TABLE diskless_claims (
        log_id INTEGER PRIMARY KEY,
        epoch INTEGER NOT NULL,
        owner TEXT NOT NULL,
        until_ms INTEGER NOT NULL)
    """,
)

# Keys that can never be committed (fences.py), and a random id of this database.
_FENCES: Final = (
    """
    CREATE TABLE diskless_fences (
        writer TEXT NOT NULL PRIMARY KEY,
        sequence INTEGER NOT NULL) WITHOUT ROWID
    """,
    "CREATE TABLE diskless_identity (identity TEXT NOT NULL)",
    "INSERT INTO diskless_identity (identity) VALUES (lower(hex(randomblob(16))))",
)

# The cluster that it belongs to, in one row (diskless.C11).
_CLUSTER: Final = (
    """
    CREATE TABLE diskless_cluster (
        number INTEGER PRIMARY KEY CHECK (number = 1),
        cluster_id TEXT NOT NULL)
    """,
)

# The leader epochs of a log that was on disks (adoption.py); NULL: it never was (diskless.C12).
LINEAGES: Final = ("ALTER TABLE diskless_logs ADD COLUMN lineage TEXT",)

MIGRATIONS: Final = (
    Migration(1, _TABLES), Migration(2, _FENCES), Migration(3, _CLUSTER), Migration(4, LINEAGES))
