"""How many partitions there may be: in one request, and in the whole cluster."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from quipu.controller.state import ClusterState
from quipu.model.errors import Code, RequestError

PARTITIONS_PER_REQUEST_MAX: Final = 10_000
MAX_PARTITIONS: Final = "max.partitions"


class RequestLimits:
    """The limits of a request as a whole, though it is decided in parts.

    It may name a topic once, and may add PARTITIONS_PER_REQUEST_MAX partitions.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._repeated = {name for name, count in Counter(names).items() if count > 1}
        self._left = PARTITIONS_PER_REQUEST_MAX

    def check(self, name: str) -> None:
        """Raise if the request names `name` several times."""
        if name in self._repeated:
            raise RequestError(f"topic {name} is named twice in one request",
                               code=Code.INVALID_REQUEST)

    def take(self, count: int) -> None:
        """Count partitions that the request adds; raises if they are too many."""
        assert count > 0, count
        if count > self._left:
            raise RequestError(
                f"one request may add {PARTITIONS_PER_REQUEST_MAX} partitions at most; "
                f"{self._left} are left for this topic's {count}: send several requests",
                code=Code.POLICY_VIOLATION)
        self._left -= count
        assert self._left >= 0, self._left


class TooManyPartitions(RequestError):
    """There would be more partitions than `max.partitions` allows."""

    code = Code.POLICY_VIOLATION


class PartitionBudget:
    """How many partitions may be added: all topics together have `max.partitions` at most."""

    def __init__(self, state: ClusterState, count_max: int) -> None:
        self._count = state.partition_count
        self._count_max = count_max

    def check(self, count: int) -> None:
        if self._count + count > self._count_max:
            raise TooManyPartitions(
                f"the cluster has {self._count} partitions, and {self._count_max} is the most "
                f"({MAX_PARTITIONS}): there is no room for {count} more; delete topics, or raise "
                "it")

    def take(self, count: int) -> None:
        """Count partitions that `check` let pass."""
        self._count += count
        assert self._count <= self._count_max, (self._count, self._count_max)
