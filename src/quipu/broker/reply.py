"""The seam between a connection and the handlers that answer with bytes of their own."""

from collections.abc import Callable
from typing import Protocol

from quipu.broker.fetch_sessions import FetchClient
from quipu.runtime.connection import Buffer


class Reply(Protocol):
    """The answer to one request; it is sent when its turn on the connection has come."""

    @property
    def fetch_client(self) -> FetchClient:
        """The connection, as the one who fetches."""
        ...

    def send(self, buffers: list[Buffer]) -> None:
        """Answer; an empty list is for requests that want no answer."""
        ...

    def hold(self) -> None:
        """Let the requests behind this one wait, which is not the answer but its work."""
        ...

    def go_on(self) -> None:
        """End `hold`; before or after the answer."""
        ...

    def close(self, why: str) -> None:
        """Close the connection instead, for a failure that the client must notice."""
        ...

    def when_lost(self, release: Callable[[], object]) -> None:
        """Call `release` if the connection is gone before the answer: nobody waits for it."""
        ...
