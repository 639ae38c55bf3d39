"""A small blocking Kafka client that hands out record batches as the broker keeps them.

librdkafka gives records one by one; the pipeline wants whole batches, to turn them into columns.
"""
