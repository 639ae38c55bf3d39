"""Maps errors to the Kafka error codes that clients get: the one place that does.

Most errors have a code of their own.  `runtime` does not know Kafka, so its errors have none, and
get one here by their class.
"""

from typing import Final

from quipu.model.errors import Code, QuipuError
from quipu.runtime.disks.errors import DiskError
from quipu.runtime.objects.errors import ObjectStoreError
from quipu.runtime.peers.peer_net import PeerError, PeerUnavailable, UnknownCall

_BY_CLASS: Final[tuple[tuple[type[QuipuError], Code], ...]] = (
    (DiskError, Code.KAFKA_STORAGE_ERROR),
    (ObjectStoreError, Code.KAFKA_STORAGE_ERROR),
    (PeerUnavailable, Code.BROKER_NOT_AVAILABLE),
    (UnknownCall, Code.UNSUPPORTED_VERSION),
)
_KNOWN: Final = frozenset(Code)


def code_of(error: QuipuError) -> Code:
    """The Kafka error code of `error`; UNKNOWN_SERVER_ERROR if it has no other."""
    if isinstance(error, PeerError):  # `number` is the code that another node found for it
        return Code(error.number) if error.number in _KNOWN else Code.UNKNOWN_SERVER_ERROR
    if error.code is Code.UNKNOWN_SERVER_ERROR:
        for kind, code in _BY_CLASS:
            if isinstance(error, kind):
                return code
    return error.code
