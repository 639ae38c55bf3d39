"""Words that every room shares: numbers with names, errors, batch types, topic names, settings.

Nothing here does I/O or imports a third party.  Start with `ids`; then `batch_types`, which
tells what kinds of batches a log may hold, and `partition_log`, what the broker asks of a log.
"""
