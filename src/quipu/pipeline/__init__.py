"""Sources with metadata columns, and views of them, on Spark.

    text -> sql (parse) -> plan (columns, types, every error) -> spark (queries) -> tables (state)
    bytes -> client -> records (Arrow) -> formats (columns) -> envelopes (rows, events) -> tables

    source, types      what travels between the rooms: planned sources, and their columns
    catalog, outside   what was created, on disk; Kafka, registries and files, as planning asks

Only `spark` imports pyspark.  Everything else is Arrow in, Arrow out, and runs on any executor.
`connect`, which is all that programs need, is described in `spark/pipeline.py`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quipu.pipeline.spark.pipeline import Pipeline


def connect(*given: Any, **named: Any) -> "Pipeline":  # noqa: ANN401 see the original
    """A pipeline over a folder of state; takes what `quipu.pipeline.spark.pipeline.connect` takes.

    Spark is imported here and not before: most of this package does without it.
    """
    from quipu.pipeline.spark.pipeline import connect as original  # noqa: PLC0415

    return original(*given, **named)
