"""Which partition of an internal topic a key belongs to, as Kafka finds it.

Clients and tools of Kafka compute this too, so it must be Java's `String.hashCode`.
"""

from typing import Final

_HASH_MASK: Final = 0xFFFF_FFFF
_INT_MIN: Final = 1 << 31  # Java's least integer, as an unsigned number


def partition_of_key(key: str, partition_count: int) -> int:
    """The partition of `key`: the absolute value of Java's hash of it, modulo the count."""
    assert partition_count > 0, partition_count
    code = 0
    units = key.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(units), 2):
        code = (31 * code + (units[position] << 8) + units[position + 1]) & _HASH_MASK
    if code >= _INT_MIN:
        code = 0 if code == _INT_MIN else (1 << 32) - code  # the least integer has no opposite
    return code % partition_count
