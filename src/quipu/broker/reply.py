"""The seam between a connection and the handlers that answer with bytes of their own."""

from typing import Protocol

from quipu.runtime.connection import Buffer


class Reply(Protocol):
    """The answer to one request; it is sent when its turn on the connection has come."""

    def send(self, buffers: list[Buffer]) -> None:
        """Answer; an empty list is for requests that want no answer."""
        ...

    def close(self, why: str) -> None:
        """Close the connection instead, for a failure that the client must notice."""
        ...
