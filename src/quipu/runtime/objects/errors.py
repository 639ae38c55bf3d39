"""Errors of an object store, by what the caller must do.

    StoreUnavailable      try again later; a write may have been carried out nevertheless
    ObjectNotFound        there is no such object
    PreconditionFailed    the object's version is not the expected one: read it again, then decide
    StoreDenied           the store does not allow this: correct credentials or permissions
    InvalidObjectRequest  no store could do this: a bad key, a range outside the object, too large
"""

from quipu.model.errors import ErrorKind, QuipuError


class ObjectStoreError(QuipuError):
    """An object store could not carry out a request."""


class StoreUnavailable(ObjectStoreError):
    """The store did not respond, is overloaded, or has no room for now."""

    kind = ErrorKind.RETRY


class ObjectNotFound(ObjectStoreError):
    """There is no object with that key."""


class PreconditionFailed(ObjectStoreError):
    """An object exists that should not, or has another version than the expected one."""

    kind = ErrorKind.REFRESH


class StoreDenied(ObjectStoreError):
    """This process is not permitted to do that."""


class InvalidObjectRequest(ObjectStoreError):
    """A request that no store could carry out."""
