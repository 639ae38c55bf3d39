"""The only room that knows Spark: data sources, sessions, streaming queries, sinks."""
