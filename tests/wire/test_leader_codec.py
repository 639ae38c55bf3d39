"""Responses that name the leader: the hot codecs' bytes, decoded by the definitions."""

from typing import NamedTuple

import pytest

from quipu.wire.fetch_codec import FetchedPart, encode_fetch_response
from quipu.wire.frame import decode_response
from quipu.wire.produce_codec import ProducedPart, encode_produce_response

TOPIC = b"0123456789abcdef"


class Node(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


NODES = [Node(7, "n7.example", 9092, None), Node(300, "h" * 200, 65535, "rack-é")]


@pytest.mark.parametrize("version", [10, 12, 13])
def test_produce_names_leaders_and_endpoints(version: int) -> None:
    """K12: KIP-951, per partition and for the whole response."""
    topic = TOPIC if version >= 13 else "t"
    frame = encode_produce_response(
        5, version, [(topic, [ProducedPart(0, 6, error_message="moved"), ProducedPart(1, 0, 42)])],
        leaders={(topic, 0): (7, 3)}, endpoints=NODES)
    _, answer = decode_response(memoryview(frame)[4:], 0, version)
    moved, taken = answer.responses[0].partition_responses  # type: ignore[attr-defined]
    assert (moved.error_code, moved.error_message) == (6, "moved")
    assert (moved.current_leader.leader_id, moved.current_leader.leader_epoch) == (7, 3)
    assert (taken.base_offset, taken.current_leader.leader_id) == (42, -1)
    assert [Node(node.node_id, node.host, node.port, node.rack)
            for node in answer.node_endpoints] == NODES  # type: ignore[attr-defined]


@pytest.mark.parametrize("version", [12, 13, 16, 18])
def test_fetch_names_leaders_and_endpoints(version: int) -> None:
    """K12: the leader from v12 on, beside a diverging epoch; endpoints from v16 on."""
    topic = TOPIC if version >= 13 else "t"
    records = memoryview(b"records")
    buffers = encode_fetch_response(
        5, version, leaders={(topic, 0): (7, 3), (topic, 2): (300, 4)}, endpoints=NODES,
        topics=[(topic, [
            FetchedPart(0, 6), FetchedPart(1, 0, 10, 10, 0, [records], len(records)),
            FetchedPart(2, 6, diverging_epoch=1, diverging_end_offset=9)])])
    _, answer = decode_response(memoryview(b"".join(buffers))[4:], 1, version)
    parts = answer.responses[0].partitions  # type: ignore[attr-defined]
    leaders = [(part.current_leader.leader_id, part.current_leader.leader_epoch) for part in parts]
    assert leaders == [(7, 3), (-1, -1), (300, 4)]
    assert bytes(parts[1].records) == b"records"
    assert (parts[2].diverging_epoch.epoch, parts[2].diverging_epoch.end_offset) == (1, 9)
    assert len(answer.node_endpoints) == (2 if version >= 16 else 0)  # type: ignore[attr-defined]
