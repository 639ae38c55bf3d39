"""Old records leave their logs, and producers that are gone are forgotten.

Both are changes of the control plane alone: objects in which nothing is left are marked there, and
deleted later (deletion.py).  Each call removes a bounded number of runs, so no transaction is long;
a log from which much has to go takes several calls.

Not here: what a rule keeps (the control plane), and logs with a remote tier, of which the tier's
own retention decides; the caller gives no rule for those.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from quipu.diskless.cleaning.services import CleaningServices
from quipu.diskless.control_plane.interface import LIMIT_MAX, RetentionRule
from quipu.diskless.values import LogBounds, LogKey

LOGS_PER_CALL: Final = 100
ROUNDS_MAX: Final = 100  # calls for the same logs in one pass; the next pass goes on
PAUSE_SECONDS: Final = 0.01  # between two calls: others use the control plane, too

Rules = Callable[[], Sequence[RetentionRule]]  # of all logs that this node knows


def is_due(rule: RetentionRule, bounds: LogBounds | None) -> bool:
    """Whether a rule may remove something of a log: cheap, so that idle logs cost nothing more."""
    if bounds is None or bounds.diskless_start_offset == bounds.high_watermark:
        return False
    return rule.retention_ms >= 0 or 0 <= rule.retention_bytes < bounds.size


class Retention:
    """Removes what the rules of this node's share of the logs do not keep."""

    def __init__(
        self, services: CleaningServices, rules: Rules, is_own: Callable[[LogKey], bool]
    ) -> None:
        self._plane = services.plane
        self._clock = services.clock
        self._rules = rules
        self._is_own = is_own
        self._limits = services.limits
        self._stats = services.stats

    async def run(self) -> None:
        """One pass over the logs."""
        mine = [rule for rule in self._rules() if self._is_own(rule.log)]
        for first in range(0, len(mine), LOGS_PER_CALL):
            await self._retain(mine[first:first + LOGS_PER_CALL])
            await asyncio.sleep(PAUSE_SECONDS)

    async def _retain(self, rules: Sequence[RetentionRule]) -> None:
        before = await self._plane.bounds([rule.log for rule in rules])
        for _ in range(ROUNDS_MAX):
            pairs = [(rule, bounds) for rule, bounds in zip(rules, before, strict=True)
                     if is_due(rule, bounds)]
            if not pairs:
                return
            rules = [rule for rule, _ in pairs]
            after = await self._plane.retain(rules, self._clock.now_ms())
            moved = [(rule, new) for (rule, old), new in zip(pairs, after, strict=True)
                     if old is not None and new is not None
                     and new.diskless_start_offset > old.diskless_start_offset]
            self._stats.logs_moved += len(moved)
            rules = [rule for rule, _ in moved]
            before = [bounds for _, bounds in moved]
            await asyncio.sleep(PAUSE_SECONDS)

    async def expire_producers(self) -> None:
        """Forget producers that have written nothing for `producer.id.expiration.ms`."""
        for _ in range(ROUNDS_MAX):
            before_ms = self._clock.now_ms() - self._limits.producer_expiry_ms
            count = await self._plane.expire_producers(before_ms, LIMIT_MAX)
            self._stats.producers_expired += count
            if count < LIMIT_MAX:
                return
            await asyncio.sleep(PAUSE_SECONDS)
