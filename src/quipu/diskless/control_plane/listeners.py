"""Who watches the commits of a control plane (diskless.C9)."""

import logging
from collections.abc import Callable

from quipu.diskless.control_plane.interface import Listener
from quipu.diskless.values import LogKey
from quipu.model.ids import Offset

_log = logging.getLogger(__name__)


class Listeners:
    """The listeners of one node; one that fails does not keep the others from being called."""

    def __init__(self) -> None:
        self._listeners: dict[object, Listener] = {}

    def add(self, listener: Listener) -> Callable[[], None]:
        watch = object()
        self._listeners[watch] = listener

        def end() -> None:
            self._listeners.pop(watch, None)

        return end

    def call(self, log: LogKey | None, high_watermark: Offset) -> None:
        for watch in list(self._listeners):
            listener = self._listeners.get(watch)
            if listener is None:
                continue  # one before it has ended its watch
            try:
                listener(log, high_watermark)
            except Exception:  # noqa: BLE001 whatever it is, it is the listener's own
                _log.exception("a listener of diskless commits failed")

    def clear(self) -> None:
        self._listeners.clear()
