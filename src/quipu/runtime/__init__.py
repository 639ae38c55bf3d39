"""The doors to the world: clock, chance, disk, network, tasks.

Everything that is not a function of its inputs comes through here and is passed in, so that a
test can put a twin in its place.  Nothing in this room knows about Kafka.
"""
