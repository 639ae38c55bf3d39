"""The pipeline on a real Spark, fed by a real node."""
