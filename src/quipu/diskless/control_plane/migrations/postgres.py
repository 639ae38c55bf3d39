"""The schema of a control plane in PostgreSQL: tables, and the functions of functions.py."""

from typing import Final

from quipu.diskless.control_plane.migrations import Migration
from quipu.diskless.control_plane.migrations.fences import FENCES
from quipu.diskless.control_plane.migrations.functions import FUNCTIONS
from quipu.diskless.control_plane.migrations.sqlite import LINEAGES

LOCK: Final = 0x71756970_64636F6E  # of those that change the schema

_TABLES: Final = (
    # A topic that was deleted stays, so that nobody creates it again (diskless.C8).
    """
    CREATE TABLE diskless_topics (
        topic_id text COLLATE "C" PRIMARY KEY,
        name text NOT NULL,
        partition_count int NOT NULL,
        deleted_ms bigint)
    """,
    """
    CREATE TABLE diskless_logs (
        log_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        topic_id text COLLATE "C" NOT NULL,
        partition int NOT NULL,
        log_start bigint NOT NULL DEFAULT 0,
        diskless_start bigint NOT NULL DEFAULT 0,
        high_watermark bigint NOT NULL DEFAULT 0,
        size bigint NOT NULL DEFAULT 0,
        last_run bigint NOT NULL DEFAULT 0,
        UNIQUE (topic_id, partition)) WITH (fillfactor = 50)
    """,
    # outcomes and log_starts: see commit_plan.py.
    """
    CREATE TABLE diskless_objects (
        object_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        object_key text COLLATE "C" NOT NULL UNIQUE,
        uploader int NOT NULL,
        size bigint NOT NULL,
        live_size bigint NOT NULL,
        run_count bigint NOT NULL,
        committed_ms bigint NOT NULL,
        marked_ms bigint,
        outcomes bigint[] NOT NULL,
        log_starts bigint[] NOT NULL)
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
        log_id bigint NOT NULL,
        end_offset bigint NOT NULL,
        base_offset bigint NOT NULL,
        object_id bigint NOT NULL,
        position bigint NOT NULL,
        size bigint NOT NULL,
        batch_count bigint NOT NULL,
        max_timestamp bigint NOT NULL,
        age_ms bigint NOT NULL,
        run_number bigint NOT NULL,
        node_max bigint NOT NULL,
        PRIMARY KEY (log_id, end_offset))
    """,
    "CREATE INDEX diskless_runs_number ON diskless_runs (log_id, run_number)",
    "CREATE INDEX diskless_runs_object ON diskless_runs (object_id, position)",
    # batches: base sequence, last sequence and base offset of each, oldest first.
    """
    CREATE TABLE diskless_producers (
        log_id bigint NOT NULL,
        producer_id bigint NOT NULL,
        epoch int NOT NULL,
        last_timestamp bigint NOT NULL,
        last_commit_ms bigint NOT NULL,
        batches bigint[] NOT NULL,
        PRIMARY KEY (log_id, producer_id)) WITH (fillfactor = 70)
    """,
    "CREATE INDEX diskless_producers_idle ON diskless_producers (last_commit_ms)",
    """
    CREATE TABLE diskless_claims (
        log_id bigint PRIMARY KEY REFERENCES diskless_logs ON DELETE CASCADE,
        epoch bigint NOT NULL,
        owner text NOT NULL,
        until_ms bigint NOT NULL)
    """,
)

# The cluster that it belongs to, in one row (diskless.C11).
_CLUSTER: Final = (
    """
    CREATE TABLE diskless_cluster (
        number int PRIMARY KEY CHECK (number = 1),
        cluster_id text NOT NULL)
    """,
)

MIGRATIONS: Final = (
    Migration(1, (*_TABLES, *FUNCTIONS)), Migration(2, FENCES), Migration(3, _CLUSTER),
    Migration(4, LINEAGES))
