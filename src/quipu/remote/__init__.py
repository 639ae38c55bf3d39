"""Tiered storage: segments of logs in object storage, and the metadata by which they are found.

    metadata/         the remote log metadata manager: which segments there are, and in which state
    segments/         segments as objects: writing them, reading them in ranges, caching
    class_names.py    classes that settings name
    verification.py   checks that both agree, byte by byte

Start with metadata/, then segments/.  Brokers use this room to copy and to serve segments, and the
pipeline to read them directly.

Not here: local logs and requests (storage, broker); which segments are copied or deleted, and when
(broker/tiering).
"""
