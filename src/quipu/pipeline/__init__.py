"""The pipeline: SQL over Kafka topics on Spark, with sources, materialized views and sinks.

    text -> sql (parse) -> plan (columns, types, every error) -> spark (queries) -> tables (state)
    bytes -> client -> records (Arrow) -> formats (columns) -> envelopes (rows, events) -> tables

    sql/                 parses statements and prints them; finds the relations of a query
    plan/                turns statements into planned sources; finds every error of a statement
    source.py            `PlannedSource`, the value that the rooms below work with
    types.py             columns, and the Arrow types behind SQL's type names
    live_facts.py        reads what planning needs from Kafka, registries, files and the clock
    registry/            a client of schema registries, and a small schema registry
    reading/             decides which offsets are read next, and reads them
    records/             turns record batches into Arrow columns
    formats/             decodes the bytes of keys and values into Arrow columns
    envelopes/           turns decoded messages into rows, or into events that change rows
    tables/              stores rows by key, in versions, in files
    execution/           turns the messages of a source into rows, within a task
    views/               the files of materialized views, and the work on them
    sinks/               the targets that sinks write to
    catalog.py           the objects that were created, stored in a file
    durable.py           writes files as a whole or not at all
    settings.py          the settings of a pipeline
    command_result.py    the result of a statement that is no query
    spark/               Spark sessions, streaming queries, and the execution of statements

Start with source.py, then follow a message: reading/loop.py, records/columns.py,
formats/contract.py, envelopes/contract.py, tables/store.py.  Only `spark` imports pyspark;
everything else takes and returns Arrow data, and runs on any executor.  Programs need only
`connect`, which is described in spark/statements/pipeline.py.
Not here: a server, a producer, and requests to brokers (client/ sends them).
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quipu.pipeline.spark.statements.pipeline import Pipeline


def connect(*given: Any, **named: Any) -> "Pipeline":  # noqa: ANN401 see the original
    """Open a pipeline on a state directory; its arguments are in `spark/statements/pipeline.py`.

    Spark is imported here and not before: most of this package does not need it.
    """
    from quipu.pipeline.spark.statements.pipeline import connect as original  # noqa: PLC0415

    return original(*given, **named)
