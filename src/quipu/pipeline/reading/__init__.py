"""Which ranges of which partitions are read next: options, positions, splits; no Spark in it."""
