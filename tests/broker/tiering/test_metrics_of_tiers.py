"""What a node shows of its remote tier when its metrics are scraped."""

from pathlib import Path

from quipu.broker.observing.samples import tier_samples, tier_totals
from quipu.broker.tiering.opening import Tiering
from tests.broker.tiering.test_tiering import COUNT, filled, objects, read_all, tiered_node, until
from tests.harness.here import NodeHere
from tests.looped import looped


def tiering_of(node: NodeHere) -> Tiering:
    found = node.node._tiering
    assert found is not None
    return found


@looped
async def test_a_scrape_shows_what_the_tier_has_and_what_was_read(tmp_path: Path) -> None:
    """R15: sizes and numbers of segments agree with the objects; reads go through the cache."""
    async with tiered_node(tmp_path) as node:
        log = await filled(node)
        await node.create("plain")
        tiering = tiering_of(node)
        await until(lambda: not log.tier.segments())
        await until(lambda: [each.metadata_count for each in tier_samples(tiering)]
                    == [len(objects(tmp_path))])
        (sample,) = tier_samples(tiering)
        assert (sample.topic, sample.partition) == ("t", 0)
        assert (sample.copy_lag_bytes, sample.copy_lag_segments) == (0, 0)
        assert (sample.delete_lag_bytes, sample.delete_lag_segments) == (0, 0)
        assert sample.remote_bytes == node.node.stats.remote.copy_bytes
        assert tier_totals(tiering) == tier_totals(None)

        await read_all(node, 0, COUNT)
        totals = tier_totals(tiering)
        assert totals.pending_reads == 0
        assert totals.cache_misses >= 2 * (len(objects(tmp_path)) - 2)  # footers and chunks
        assert totals.cache_hits > 0
        assert totals.cache_bytes == totals.cache_loaded_bytes > log.local_start_offset * 1000
    assert list(tier_samples(None)) == []
