"""Other nodes' words about epochs, as a node's chains take them in."""

from pathlib import Path

import pytest

from quipu.chain.codec import encode
from quipu.chain.messages import Fenced
from quipu.model.bounds import EPOCH_MAX
from quipu.model.ids import Epoch, NodeId
from tests.broker.replication.rig import TOPIC_ID, ANode, Rig
from tests.broker.replication.test_partition_chain import a_chain
from tests.looped import looped

STRANGER = NodeId(66)


def hears(node: ANode, sender: int, epoch: int) -> None:
    frame = b"".join(encode(TOPIC_ID.bytes, 0, Fenced(Epoch(epoch))))
    node.replication._received(NodeId(sender), memoryview(frame))


@pytest.mark.parametrize("number", [0, 1, 2])
@looped
async def test_a_wrong_claim_is_a_pause_until_the_metadata_was_read(
    tmp_path: Path, number: int
) -> None:
    """K8, V15: at the head, in the middle and at the tail; nothing is lost, and writes go on."""
    rig = Rig(tmp_path)
    nodes = await a_chain(rig, 3)
    await nodes[0].produce(b"before")
    node = nodes[number]
    liar = 1 + (number + 1) % 3
    hears(node, liar, rig.epoch + 5)
    assert not node.partition.is_serving

    late = node.replication.fenced_chains()
    hears(node, liar, rig.epoch + 5)
    node.replication.confirm_epochs(late, lambda _: rig.epoch)
    assert not node.partition.is_serving  # it was read before the last word came
    node.replication.confirm_epochs(node.replication.fenced_chains(), lambda _: None)
    assert not node.partition.is_serving  # this node has no part, the metadata says

    node.replication.confirm_epochs(node.replication.fenced_chains(), lambda _: rig.epoch)

    assert node.replication.fenced_chains() == []
    await rig.leads(nodes[0])
    await nodes[0].produce(b"after")
    await rig.settled()
    rig.check_identical(*nodes)
    assert all(each.partition.is_serving for each in nodes)


@pytest.mark.parametrize(("sender", "ahead"), [
    (STRANGER, 1), (STRANGER, 1 << 20), (2, 1 << 20), (2, EPOCH_MAX - 100)])
@looped
async def test_words_that_are_not_believed_are_counted_and_logged(
    tmp_path: Path, sender: int, ahead: int, caplog: pytest.LogCaptureFixture
) -> None:
    """K8, V15: in few lines, however many come."""
    rig = Rig(tmp_path)
    a, b = await a_chain(rig, 2)
    with caplog.at_level("INFO"):
        for _ in range(100):
            hears(a, sender, rig.epoch + ahead)
    assert a.partition.is_leader
    assert b.partition.is_serving
    assert a.replication.refused_count == 100
    lines = [record for record in caplog.records if "claims epoch" in record.getMessage()]
    assert 0 < len(lines) < 50


@looped
async def test_what_is_no_message_is_counted(tmp_path: Path) -> None:
    """K8: and harms nothing."""
    rig = Rig(tmp_path)
    a, _ = await a_chain(rig, 2)
    for body in (b"\xff", b"\x01", b"\x05" + bytes(16) + b"\xff" * 8):
        a.replication._received(NodeId(2), memoryview(body))
    assert a.replication.refused_count == 3
    assert a.partition.is_leader
