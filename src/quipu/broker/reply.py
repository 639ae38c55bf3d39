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

    def send_large(self, buffers: list[Buffer], size: int) -> None:
        """The same for an answer of which `size` bytes are memory until it has left.

        If there is no room for them the connection is closed instead.
        """
        ...

    def hold(self, frame: memoryview) -> memoryview:
        """Let the requests behind this one wait for its work, which is not its answer.

        Gives the bytes of the request, which stay as they are until `go_on`.
        """
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
