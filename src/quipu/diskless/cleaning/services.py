"""What every pass of a cleaner uses."""

from collections.abc import Awaitable, Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from quipu.diskless.cleaning.limits import CleaningLimits
from quipu.diskless.cleaning.stats import CleaningStats
from quipu.diskless.control_plane.interface import ControlPlane
from quipu.diskless.objects.names import ObjectName
from quipu.runtime.clock import Clock
from quipu.runtime.log_limits import LimitedLog
from quipu.runtime.objects.store import ObjectStore

# Stores what must stay of objects that are about to be deleted, and returns the keys of those whose
# footers cannot be read (receipts.py).
KeepReceipts = Callable[[Sequence[str]], Awaitable[AbstractSet[str]]]


class CleaningServices(NamedTuple):
    """The store, the control plane, and what the passes of one node share."""

    store: ObjectStore
    plane: ControlPlane
    clock: Clock
    new_name: Callable[[], ObjectName]  # of objects that the cleaner makes
    limits: CleaningLimits
    stats: CleaningStats
    log: LimitedLog
