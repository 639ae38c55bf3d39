"""`quipu bench`: how fast a broker is, beside how fast the machine is.

    commands     produce, consume, latency, sql: options in, a report out
    runs         one load against the broker, and its limits beside it
    table        the table of docs/operating/benchmarks.md, P1 to P7 and P15: `make bench`

    frames       requests made once and sent many times
    closed_loop  as fast as answers come; tail: many consumers at the end of a log
    open_loop    at a fixed rate, for latency
    rdkafka      the same loads through librdkafka
    bare         servers that only move bytes; limits: what they reach on this machine

    sql          rows through Spark: parts of it (sql_parts), ways to get rows (sql_loads), the rows
                 themselves (sql_data), what it tells (sql_report)

    control      topics and leaders; target: the broker; processes: CPU and helpers
    measured, report, machine, plot

Every load generator and every bare server is a process of its own.  Nothing here asserts on time:
a slow machine gets a slow report.
"""

from typing import Any


def __getattr__(name: str) -> Any:  # noqa: ANN401 what a module gives
    """`app`, imported when it is asked for: load generators need none of it."""
    if name == "app":
        from quipu.cli.bench.commands import app  # noqa: PLC0415 see above

        return app
    raise AttributeError(name)
