"""How the handlers of Produce and Fetch, which encode their responses themselves, respond."""

from collections.abc import Callable
from typing import Protocol

from quipu.broker.serving.fetch_sessions import FetchClient
from quipu.model.listeners import ClientListener
from quipu.runtime.net.connection import Buffer


class Reply(Protocol):
    """Responds to one request; responses leave a connection in the order of its requests."""

    @property
    def listener(self) -> ClientListener:
        """The listener that the client connected to."""
        ...

    @property
    def fetch_client(self) -> FetchClient:
        """The fetch sessions of this connection."""
        ...

    def send(self, buffers: list[Buffer]) -> None:
        """Respond; an empty list is for requests that want no response."""
        ...

    def send_large(self, buffers: list[Buffer], size: int) -> None:
        """Respond with buffers of which `size` bytes stay in memory until they are sent.

        If there is no room for that many bytes, the connection is closed instead.
        """
        ...

    def hold(self, frame: memoryview) -> memoryview:
        """Handle no later request of this connection until `go_on`.

        Returns the bytes of the request, which do not change until then.
        """
        ...

    def go_on(self) -> None:
        """End `hold`; may be called before or after the response is sent."""
        ...

    def close(self, why: str) -> None:
        """Close the connection instead of responding, so that the client notices a failure."""
        ...

    def when_lost(self, release: Callable[[], object]) -> None:
        """Call `release` if the connection closes before the response is sent."""
        ...
