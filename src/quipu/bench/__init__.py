"""`quipu bench`: measures a broker, and in the same run the limits of the machine.

    commands.py     the commands produce, consume, latency, diskless, placement and sql; start here
    runs.py         `BenchRun`: measures one load on the broker, and the limits for that load
    against.py      the same load on several brokers in turns: `--against`, `make bench-kafka`
    table.py        the table of docs/operating/benchmarks.md, P1 to P11, P15, P16: `make bench`
    lines.py        `Line`: one line of that table
    orders.py       its line P16: rotated orders against a fixed one
    tier.py         its line P11: fetches from the remote tier
    compaction.py   its line on produce while compaction runs
    diskless/       its lines P9 and P10, and `quipu bench diskless`
    sql/            measures the pipeline on Spark: `quipu bench sql`
    placement/      measures managed placement alone, on large clusters: `quipu bench placement`

    frames.py       requests that are encoded once and sent many times
    closed_loop.py  load generator that sends requests as fast as responses come
    tail.py         load generator with many consumers at the end of a log
    open_loop.py    load generator with a fixed rate, for latency
    rdkafka.py      the same loads through librdkafka
    bare.py         bare servers, which only receive and send bytes
    limits.py       measures the limits of the machine, with the bare servers
    raw_gets.py     raw ranged gets of objects, the limit of reads from a remote tier
    s3_server.py    an S3 server, a process of its own

    target.py       the broker that is measured: at an address, or a temporary node
    control.py      creates the topic of a run, and finds the leaders of its partitions
    processes.py    runs functions in processes of their own; the CPU that a process has used
    measured.py     `Measured`: counts, time, latencies and CPU of one measurement
    report.py       `Report`: the measurements of a run, the limits and the ratios
    errors.py       the error that ends a run
    machine.py      describes the machine, Python and the libraries of a run
    plot.py         draws a report

Every load generator and every bare server is a process of its own.  Nothing here asserts on time:
a slow machine gets a slow report.  Not here: the command line itself (`cli`), which imports this
room only for `quipu bench`.
"""
