"""Fetch — API key 1, versions 4-18.

Behaviour
    * sends slices of the log as they lie on disk; only batches of clients, never internal ones
    * waits up to max_wait for min_bytes, no longer than fetch.max.wait.ms, and only while the
      client is connected; an error of any partition is sent at once, and so is the response to a
      fetch of no partitions, as the one that closes a session
    * the first batch is sent even if it exceeds every limit, so that a client always makes progress
    * incremental sessions: see serving/fetch_sessions.py
    * a fetch of many partitions, named or in a session, takes turns with others:
      serving/large_fetch.py
    * the next request of a connection is handled only after this response was sent
    * the head of a chain sends consumers to its tail; other serving nodes give records, and all
      other nodes respond with the leader: see serving/fetching.py
    * a consumer of a diskless topic that says its rack is sent to a replica there, if there is one
    * replica id -2 reads everything that a node has, committed or not (`--dirty`)

Versions
    v7   incremental sessions     v9   leader epochs are checked     v11  rack of the client
    v12  flexible encoding, diverging epochs     v13  topics by id     v15  replica state
    v16  node endpoints     v17, v18  fields of replicas, which fetch in another way here
"""

from struct import Struct
from typing import Final

from quipu.broker.error_codes import code_of
from quipu.broker.serving import large_fetch
from quipu.broker.serving.context import Broker
from quipu.broker.serving.fetch_sessions import FetchTarget
from quipu.broker.serving.fetching import (
    DIRTY_READER,
    VERSION_IDS,
    read,
)
from quipu.broker.serving.pending_fetch import PendingFetch
from quipu.broker.serving.reply import Reply
from quipu.broker.serving.request_queue import LARGE_SIZE
from quipu.broker.serving.zone_views import NOWHERE, nodes_nearer
from quipu.model.errors import MalformedBytes, QuipuError
from quipu.wire.fast import parse_fetch
from quipu.wire.fetch_codec import encode_fetch_response

VERSION_MIN: Final = 4
VERSION_MAX: Final = 18
REQUEST_SIZE_MAX: Final = 2 << 20  # some 60,000 partitions; each costs far more than its bytes
TARGETS_MAX: Final = 512  # partitions of a fetch that is served without pauses

_HEAD: Final = Struct(">hhi")


def fetch(broker: Broker, reply: Reply, frame: memoryview) -> None:
    """Respond with records, at once or as soon as there are enough of them."""
    _, version, correlation_id = _HEAD.unpack_from(frame)
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise MalformedBytes(f"Fetch v{version} is not served; v{VERSION_MIN} to "
                             f"v{VERSION_MAX} are")
    if len(frame) > LARGE_SIZE:
        if len(frame) > REQUEST_SIZE_MAX:
            raise MalformedBytes(
                f"a fetch of {len(frame)} bytes; at most {REQUEST_SIZE_MAX} are allowed")
        large_fetch.begin(broker, reply, frame, (correlation_id, version))
        return
    call = parse_fetch(frame, -1, version)
    client = reply.fetch_client
    try:
        session = broker.fetch_sessions.open(
            client, call.session_id, call.session_epoch,
            ([FetchTarget(*target) for target in call.targets], call.forgotten),
            by_id=version >= VERSION_IDS)
    except QuipuError as error:
        reply.send(encode_fetch_response(
            correlation_id, version, error_code=code_of(error), topics=[]))
        return
    if len(session.targets) > TARGETS_MAX:
        large_fetch.go_on(broker, reply, (correlation_id, version), call, session)
        return
    near = nodes_nearer(broker, call.rack_id, reply.listener) if call.rack_id else NOWHERE
    reader = call.max_bytes, version, call.replica_id == DIRTY_READER, client, near
    found = read(broker, session, reader)
    pending = PendingFetch(broker, reply, (correlation_id, reader), call, session)
    if ((found.size >= call.min_bytes and not found.coming) or found.failed or call.max_wait <= 0
            or not session.targets
            or not broker.fetch_sessions.hold(client, session)):
        pending.send(found)
    else:
        pending.wait(found)
