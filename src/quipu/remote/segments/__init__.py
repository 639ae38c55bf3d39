"""Segments as objects: their format, writing and reading them, and a cache of what was read.

    names.py     the name of a segment, and the key of its object
    pointer.py   where the footer of an object lies, and its checksum
    footer.py    the footer: what the segment is, its chunks and indexes
    chunks.py    cuts batches into chunks, and checks chunks that were read
    writer.py    writes a segment as an object
    reader.py    reads batches of a segment, fetching only the chunks needed
    times.py     finds a record by its time in one chunk
    cache.py     a bounded cache of chunks and footers
    orphans.py   finds objects that no metadata refers to
    remote_storage.py   copies, readers and deletions of segments as objects
    managed_storage.py  the same over a class of a user's own, as Kafka's RemoteStorageManager
    errors.py    errors of remote segments, by what the caller must do

Start with docs/internals/segment-object.md, then footer.py, writer.py and reader.py.

Not here: which segments there are (remote/metadata), object stores (runtime/objects).
"""
