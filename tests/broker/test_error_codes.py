"""Which code a client gets for an error that knows no Kafka."""

import pytest

from quipu.broker.error_codes import code_of
from quipu.model.errors import Code, ErrorKind, QuipuError, RequestError
from quipu.runtime.disks.errors import DiskBusy, DiskError, DiskFull, NotFound, TransientDiskError
from quipu.runtime.peers.peer_net import PeerError, PeerUnavailable, UnknownCall


@pytest.mark.parametrize(("error", "code"), [
    *((kind("x"), Code.KAFKA_STORAGE_ERROR)
      for kind in (DiskError, TransientDiskError, DiskFull, DiskBusy, NotFound)),
    (PeerUnavailable("x"), Code.BROKER_NOT_AVAILABLE),
    (UnknownCall("x"), Code.UNSUPPORTED_VERSION),
    (QuipuError("x"), Code.UNKNOWN_SERVER_ERROR),
    (RequestError("x", code=Code.INVALID_REQUEST), Code.INVALID_REQUEST),
    (DiskError("x", code=Code.CORRUPT_MESSAGE), Code.CORRUPT_MESSAGE),
    (PeerError("x", number=41, kind=ErrorKind.REFRESH), Code.NOT_CONTROLLER),
    (PeerError("x", number=9999, kind=ErrorKind.RETRY), Code.UNKNOWN_SERVER_ERROR),
], ids=repr)
def test_an_error_gets_its_code_by_its_class_unless_it_brings_one(
    error: QuipuError, code: Code
) -> None:
    """An error of another node has the code that it was given there, if this version knows it."""
    assert code_of(error) is code
