"""Which batches take too long to decompress on the event loop, where they block all other work."""

from typing import Final

LOOP_SIZE_MAX: Final = 256 << 10  # a batch with more decompressed bytes is always heavy
LOOP_SIZE_SMALL: Final = 64 << 10  # a batch with no more decompressed bytes is never heavy
LOOP_RATIO_MAX: Final = 16  # in between: decompressed bytes for each byte of the batch


def is_heavy(batch_size: int, size: int) -> bool:
    """Whether a batch of `batch_size` bytes, and `size` bytes decompressed, is too large."""
    return size > max(LOOP_SIZE_SMALL, min(LOOP_SIZE_MAX, LOOP_RATIO_MAX * batch_size))
