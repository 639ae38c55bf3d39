"""`Cluster` objects that are shared by the tasks of a process, one per thread and settings.

Spark reuses its Python workers; connecting and requesting metadata again for every task would cost
more than a small task itself.
"""

import atexit
import os
import threading
from collections import OrderedDict
from typing import Final

from quipu.client.cluster import Cluster
from quipu.client.settings import ClientSettings

KEPT_MAX: Final = 16


class _Kept(threading.local):
    """The clusters of one thread: a `Cluster` may be used by one thread only."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.clusters: OrderedDict[ClientSettings, Cluster] = OrderedDict()


_kept = _Kept()


@atexit.register
def _close_all() -> None:
    if _kept.process == os.getpid():
        for cluster in _kept.clusters.values():
            cluster.close()


def shared(settings: ClientSettings) -> Cluster:
    """This thread's cluster with these settings, with the connections that it already has."""
    if _kept.process != os.getpid():  # after a fork: the sockets belong to the parent
        _kept.__init__()  # type: ignore[misc]  # forget them without closing them
    clusters = _kept.clusters
    if settings not in clusters:
        clusters[settings] = Cluster(settings)
        if len(clusters) > KEPT_MAX:
            clusters.popitem(last=False)[1].close()
    clusters.move_to_end(settings)
    return clusters[settings]


def close_shared() -> None:
    """Close the clusters of this thread, which is about to end."""
    while _kept.clusters and _kept.process == os.getpid():
        _kept.clusters.popitem()[1].close()
