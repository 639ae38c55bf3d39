"""A node as docs/operating/remote-storage.md sets it up: segments in S3, metadata in PostgreSQL."""

from pathlib import Path

import pytest

from quipu.remote.verification import list_objects
from quipu.runtime.objects.urls import open_store
from quipu.wire.messages.k10003_describe_remote_segments import (
    DescribeRemoteSegmentsRequest,
    RemoteSegmentsPartition,
    RemoteSegmentsTopic,
)
from tests.broker.tiering.test_tiering import COUNT, filled, read_all, tiered_node, values
from tests.harness.postgres import PostgresServer
from tests.harness.s3_server import CREDENTIALS, S3Server
from tests.looped import looped


@looped
async def test_segments_in_s3_by_a_file_of_credentials_and_metadata_in_postgresql(
    tmp_path: Path, s3_server: S3Server, postgres_server: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R13, R8: a restart finds everything, and no client is told where the credentials are."""
    url = s3_server.url(s3_server.bucket())
    store = open_store(url, lambda: 0)
    path = tmp_path / "credentials"
    path.write_text("[default]\n" + "".join(
        f"{name.lower()} = {value}\n" for name, value in CREDENTIALS.items()))
    for name in CREDENTIALS:
        monkeypatch.delenv(name)
    settings = {"remote_log_storage_url": f"{url}&credentials={path}",
                "rlmm_config_metadata_storage_url": postgres_server.url}
    async with tiered_node(tmp_path, **settings) as node:
        await filled(node)
        assert await read_all(node, 0, COUNT) == values(range(COUNT))
    async with tiered_node(tmp_path, **settings) as node:
        assert await read_all(node, 0, COUNT) == values(range(COUNT))
        async with node.connect() as peer:
            listed = await peer.ask(DescribeRemoteSegmentsRequest(
                in_any_state=True, topics=[RemoteSegmentsTopic(
                    name="t", partitions=[RemoteSegmentsPartition(partition_index=0)])]), 0)
        assert listed.storage_url == url
        assert len(await list_objects(store)) == len(listed.topics[0].partitions[0].segments) > 5
    await store.close()
    assert not (tmp_path / "data" / "remote").exists()
