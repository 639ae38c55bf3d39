"""A node that does not hear from the controller sends its clients away."""

from pathlib import Path

import pytest

from quipu.wire.messages.k03_metadata import MetadataRequest
from tests.harness.here import NodeHere
from tests.looped import looped


@looped
async def test_a_node_out_of_touch_responds_and_closes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K8: broker.serving.Q4; a client that knows this node alone finds another one."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        monkeypatch.setattr(
            type(node.node.broker.cluster), "is_out_of_touch", property(lambda _: True))
        assert (await peer.ask(MetadataRequest(), 12)).brokers
        assert await peer.closed()
