"""What a node reports about itself: metrics, health and log lines.

    stats.py          counters and gauges: plain numbers that the hot path increments
    diskless_metrics.py  the metrics of diskless topics
    placement_metrics.py  the metrics of managed placement, and of what a node knows of logs
    metric_tables.py  the metrics of the whole node: name, type, meaning
    metrics.py        all metrics as Prometheus text, in pieces
    text_format.py    the lines of a metric
    cluster_metrics.py  whether the cluster takes writes, by this node's metadata
    samples.py        reads chains, groups, offsets and tiers for a scrape
    placement_samples.py  reads racks and placements of diskless partitions for a scrape
    placement_pages.py  the same as JSON: /placement and /placement/racks
    health.py         whether a node is alive, whether it is ready, and why not
    chain_health.py   whether a node serves in its chain, and which writes it would refuse
    http.py           the HTTP port: /metrics, /placement, /health/live, /health/ready
    loggers.py        the levels of loggers, which clients may see and change
    logs.py           formats log lines for standard error, as text or JSON

Start at `http.py`, the port on which metrics and health are served.
Not here: counting (each room increments `Stats`), the docs page of the metrics
(tools/metrics_table.py).
"""
