"""`BlockCache`: the blocks that were read or written last, of all logs, bounded in bytes.

Recent (hot) and older (cold) blocks are kept apart: when there is no room, those are dropped that
have more than their half, the least recently used first.  So who reads a log from its beginning
does not drive out what all others read at its end.

Invariant
    diskless.R5  the blocks held have at most `size_max` bytes together; hot ones lose their place
                 to cold ones only if they have more than half of it, and the other way round
"""

from collections import OrderedDict

from quipu.diskless.reading.blocks import Block
from quipu.diskless.reading.stats import ReaderStats

BlockKey = tuple[str, int]  # of the object, and the position in it


class _Part:
    """The hot or the cold blocks."""

    __slots__ = ("blocks", "size")

    def __init__(self) -> None:
        self.blocks: OrderedDict[BlockKey, Block] = OrderedDict()  # least recently used first
        self.size = 0


class BlockCache:
    """The blocks of one reader."""

    def __init__(self, size_max: int, stats: ReaderStats) -> None:
        self._size_max = size_max
        self._stats = stats
        self._hot, self._cold = _Part(), _Part()

    @property
    def size(self) -> int:
        """Bytes held."""
        return self._hot.size + self._cold.size

    def find(self, key: BlockKey) -> Block | None:
        """The block, if it is held; counts as a use of it."""
        for part in (self._hot, self._cold):
            block = part.blocks.get(key)
            if block is not None:
                part.blocks.move_to_end(key)
                return block
        return None

    def holds(self, key: BlockKey) -> bool:
        """Whether the block is held; does not count as a use of it."""
        return key in self._hot.blocks or key in self._cold.blocks

    def keep(self, key: BlockKey, block: Block, *, is_hot: bool) -> None:
        """Hold a block, if it is not larger than the half of the cache."""
        if 2 * block.size > self._size_max or self.holds(key):
            return
        part = self._hot if is_hot else self._cold
        part.blocks[key] = block
        part.size += block.size
        while self.size > self._size_max:  # diskless.R5
            larger = self._hot if self._hot.size >= self._cold.size else self._cold
            _, oldest = larger.blocks.popitem(last=False)
            larger.size -= oldest.size
            self._stats.evictions += 1
        self._stats.cached_now = self.size

    def forget(self, key: BlockKey) -> None:
        """Drop a block, if it is held."""
        for part in (self._hot, self._cold):
            block = part.blocks.pop(key, None)
            if block is not None:
                part.size -= block.size
        self._stats.cached_now = self.size

    def clear(self) -> None:
        """Drop everything."""
        self._hot, self._cold = _Part(), _Part()
        self._stats.cached_now = 0

    def invariants(self) -> None:
        """Assert what holds between two calls."""
        for part in (self._hot, self._cold):
            assert part.size == sum(block.size for block in part.blocks.values())
        assert self.size <= self._size_max, self.size  # diskless.R5
        assert not self._hot.blocks.keys() & self._cold.blocks.keys()
