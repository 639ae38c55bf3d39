"""The pauses between the attempts of one call: they double, up to a deadline."""

import time

from quipu.client.errors import ClientError
from quipu.client.settings import ClientSettings
from quipu.model.errors import ErrorKind


class Retry:
    """The attempts of one call: `pause` waits between them, or raises when the time is over."""

    def __init__(self, settings: ClientSettings, *, seconds: float | None = None) -> None:
        if seconds is None:
            seconds = settings.default_api_timeout_ms / 1000
        self.deadline = time.monotonic() + seconds
        self._first = settings.retry_backoff_ms / 1000
        self._longest = settings.retry_backoff_max_ms / 1000
        self._count = 0

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.deadline

    def next_pause(self) -> float:
        """Seconds to wait before the next attempt."""
        pause = min(self._first * (1 << min(self._count, 30)), self._longest)
        self._count += 1
        return pause

    def pause(self, error: ClientError) -> None:
        """Wait before the next attempt; raise `error` if it will not pass, or the time is over."""
        if error.kind not in (ErrorKind.RETRY, ErrorKind.REFRESH) or self.is_over:
            raise error
        left = max(self.deadline - time.monotonic(), 0)
        time.sleep(min(self.next_pause(), left))
