"""Errors of remote segments, by what the caller must do.

    SegmentDamaged        wrong bytes: nothing of them was returned; restore the object
    SegmentMissing        there is no such object: look into the metadata again
    UnknownSegmentFormat  a later version wrote the object: update this node

An object store that does not respond raises its own errors (runtime/objects/errors.py).
"""

from quipu.model.errors import Code, CorruptLog, ErrorKind, QuipuError, UnknownFormat


class SegmentDamaged(CorruptLog):
    """The bytes of a remote segment are not those that were written."""


class SegmentMissing(QuipuError):
    """The object of a remote segment does not exist."""

    kind = ErrorKind.REFRESH
    code = Code.KAFKA_STORAGE_ERROR


class UnknownSegmentFormat(UnknownFormat):
    """The object of a remote segment has a format that this version does not know."""
