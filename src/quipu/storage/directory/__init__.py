"""The data directory of one node: its logs, and what the node keeps beside them.

Start with `data_directory.py`: it opens, closes and deletes logs.

    data_directory.py   all logs of one node under one lock; flushes and marks in the background
    node_log.py         the node's own log: flushed marks, clean shutdowns, topics being removed
    directory_names.py  the names of the directories of logs
    directory_id.py     the id that shows that a node started again with its data
    removal.py          logs that a start finds half removed
    reserve.py          disk space kept for the writes that a node must do on a full disk

Not here: one log (log.py), one log's directory as a value (log_directory.py).
"""
