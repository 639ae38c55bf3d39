"""Errors of remote log metadata, by what the caller must do.

    RemoteResourceNotFound    there is no such segment, or this broker does not know the partition
    InvalidMetadata           a value that can never be right: correct it
    InvalidTransition         a segment or a deletion cannot go from its state to that one
    NotPartitionLeader        only the leader writes: ask it
    FencedLeader              another leader has taken over: stop, and wait to be elected again
    CorruptMetadata           what is stored contradicts itself: restore it
    MetadataClosed            the manager is not open

Errors of a storage backend; whether the write may have been carried out is what counts:

    KeyExists                 the key has another value; nothing was written
    KeyNotFound               there is no such key; nothing was written
    ExpectationFailed         another writer changed what was expected; nothing was written
    BackendUnavailable        nothing was written; try again later
    OutcomeUnknown            the write was carried out, or was not, or will be later
    InvalidStorageRequest     no backend could do this
"""

from quipu.model.errors import Code, ErrorKind, QuipuError


class RemoteMetadataError(QuipuError):
    """Remote log metadata could not be read or written; Kafka's RemoteStorageException."""

    code = Code.KAFKA_STORAGE_ERROR


class RemoteResourceNotFound(RemoteMetadataError):
    """An unknown segment or partition."""

    code = Code.RESOURCE_NOT_FOUND


class InvalidMetadata(RemoteMetadataError):
    """A value that no segment or partition can have; Kafka's IllegalArgumentException."""

    code = Code.INVALID_REQUEST


class InvalidTransition(RemoteMetadataError):
    """A change of state that the life cycle does not have."""

    code = Code.INVALID_REQUEST


class NotPartitionLeader(RemoteMetadataError):
    """A write on a broker that does not lead the partition."""

    kind = ErrorKind.REFRESH
    code = Code.NOT_LEADER_OR_FOLLOWER


class FencedLeader(RemoteMetadataError):
    """A write of a leader that another one has replaced."""

    kind = ErrorKind.REFRESH
    code = Code.FENCED_LEADER_EPOCH


class CorruptMetadata(RemoteMetadataError):
    """Stored metadata that contradicts itself."""

    kind = ErrorKind.CORRUPT


class MetadataClosed(RemoteMetadataError):
    """A manager that is not open, or no longer."""


class MetadataStorageError(RemoteMetadataError):
    """A storage backend could not carry out a request."""


class KeyExists(MetadataStorageError):
    """A key to create that has another value already."""


class KeyNotFound(MetadataStorageError):
    """A key to update that does not exist."""


class ExpectationFailed(MetadataStorageError):
    """A key that does not have the expected value."""

    kind = ErrorKind.REFRESH


class BackendUnavailable(MetadataStorageError):
    """The backend did not respond, or has no room for now; nothing was written."""

    kind = ErrorKind.RETRY


class OutcomeUnknown(BackendUnavailable):
    """A write that may have been carried out, or may be carried out later."""


class InvalidStorageRequest(MetadataStorageError):
    """A request that no backend could carry out."""
