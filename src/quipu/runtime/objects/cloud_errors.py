"""Turns errors of obstore into those of a store.

obstore's messages hold the URL of the request, the server's response and a dump of internal state.
They may show a signature or a token, so only what is known to be harmless is taken from them: the
HTTP status, the error code of the server (a word such as SlowDown), and whether the network failed.
Errors are raised without the one they come from (runtime.O7).
"""

import re
from typing import Final

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from quipu.runtime.objects.errors import (
    InvalidObjectRequest,
    ObjectNotFound,
    ObjectStoreError,
    PreconditionFailed,
    StoreDenied,
    StoreUnavailable,
)

_STATUS: Final = re.compile(r"status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>([A-Za-z]{1,60})</Code>")
_TEXT_SIZE_MAX: Final = 10_000  # characters of a message that are searched
_PASSING: Final = frozenset({408, 409, 425, 429})  # and 500 to 599
_PASSING_CODES: Final = frozenset({"RequestTimeout", "SlowDown", "OperationAborted"})
_DENIED_CODES: Final = frozenset({"ExpiredToken", "InvalidToken", "InvalidAccessKeyId",
                                  "XAdminUserNotFound"})  # versitygw's, with status 404
_BUCKET_CODES: Final = frozenset({"NoSuchBucket", "ContainerNotFound"})
_ABSENT_CODES: Final = frozenset({"", "NoSuchKey", "BlobNotFound"})  # empty: HEAD has no body
_EXISTS_CODES: Final = frozenset({"BlobAlreadyExists"})  # Azure's, with status 409
_PATH_CODES: Final = frozenset(  # versitygw's over a folder, with status 409
    {"ObjectParentIsFile", "ExistingObjectIsDirectory"})
_BEYOND: Final = "Wanted range starting at "  # obstore's own, where a server cuts the range

CloudErrors: Final = (BaseError, OSError, ValueError)  # FileNotFoundError is obstore's "not found"


def mapped(what: str, error: Exception) -> ObjectStoreError:
    """The error of a store for one of obstore; `what` names the object or the operation."""
    text = str(error)[:_TEXT_SIZE_MAX]
    status = int(found[1]) if (found := _STATUS.search(text)) else 0
    reply = found[1] if (found := _CODE.search(text)) else ""
    reason = f"{what}: " + (f"HTTP {status} {reply}".rstrip() if status else "no response")
    if reply in _EXISTS_CODES:
        return PreconditionFailed(f"{what}: the object exists already")
    if reply in _PATH_CODES:
        return ObjectStoreError(f"{reason}; in this store no key can begin with another one and /")
    if status in _PASSING or status >= 500 or reply in _PASSING_CODES:
        return StoreUnavailable(reason)  # also a conflict with a put that is under way
    match error:
        case _ if reply in _BUCKET_CODES:
            return ObjectStoreError(f"{what}: there is no such bucket; create it, or correct the "
                                    "store's URL")
        case FileNotFoundError() if reply in _ABSENT_CODES:
            return ObjectNotFound(f"{what}: no such object")
        case AlreadyExistsError():
            return PreconditionFailed(f"{what}: the object exists already")
        case PreconditionError():
            return PreconditionFailed(f"{what}: the object does not have the expected version")
        case PermissionDeniedError() | UnauthenticatedError() | PermissionError():
            return StoreDenied(f"{reason}; check the store's credentials and their permissions")
        case NotSupportedError():
            return ObjectStoreError(f"{what}: the store does not support this operation")
    if reply in _DENIED_CODES or status in (401, 403):
        return StoreDenied(f"{reason}; check the store's credentials and their permissions")
    if status == 416 or _BEYOND in text:
        return InvalidObjectRequest(f"{what}: a range that begins after the end of the object")
    if status == 0 and not isinstance(error, ValueError | FileNotFoundError):
        return StoreUnavailable(reason)
    return ObjectStoreError(reason)
