"""The pipeline on a Spark cluster of several processes."""
