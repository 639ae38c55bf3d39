"""Which ranges of which partitions are read next, and the loop that reads them; no Spark in it.

    options      what a reader can be told; `place` makes the same of a planned source
    positions    how far a reader is, also as JSON
    stream       `Stream`: where a stream begins and goes on; `snapshot`: what a batch read reads
    ranges       how much a batch takes, and how it is shared out among tasks
    loop         `read_ranges`: what every reading task runs
"""
