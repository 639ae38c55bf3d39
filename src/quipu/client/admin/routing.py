"""Sends a request to the nodes of a cluster in turn, until one carries it out.

Any node of a Quipu cluster accepts any request and forwards it to the controller; so do brokers of
Kafka.  The client only has to find a node that responds, and to retry while the cluster has no
controller.

Invariants
    client.R1  a request is sent again only after a failure that may be transient
    client.R2  `may_repeat` is set if an earlier attempt may have been carried out
"""

import time
from collections.abc import Callable, Collection, Iterator
from typing import Final, Generic, NamedTuple, TypeVar

from quipu.client.cluster import Cluster
from quipu.client.errors import ConnectionFailed, NotServed
from quipu.client.retry import Retry
from quipu.model.errors import Code
from quipu.model.settings_types import Address
from quipu.wire.schema import Request, Response

TRANSIENT: Final = frozenset({  # errors of a cluster that has no controller for a moment
    Code.NOT_CONTROLLER, Code.REQUEST_TIMED_OUT,
    Code.LEADER_NOT_AVAILABLE, Code.NETWORK_EXCEPTION,
})

R = TypeVar("R", bound=Response)


class Routed(NamedTuple, Generic[R]):
    """A response, and whether an earlier attempt may have been carried out already."""

    response: R
    may_repeat: bool


def ask_any(
    cluster: Cluster, request: Request, response_type: type[R],
    codes: Callable[[R], Collection[int]] | None = None,
) -> Routed[R]:
    """The first response without a transient error, within default.api.timeout.ms.

    `codes` returns the error codes of a response; by default its `error_code`.  While all of them
    are `TRANSIENT`, the request is sent to the next node, and then to all of them again.  When the
    time is over the last response is returned with its errors, for the caller to handle.
    """
    retry = Retry(cluster.settings)
    attempts = _Attempts(cluster, request, response_type)
    while True:
        problems: list[ConnectionFailed] = []
        response: R | None = None
        for address in _nodes(cluster):
            try:
                response = attempts.ask(address)
            except ConnectionFailed as error:
                problems.append(error)
                continue
            found = codes(response) if codes is not None else [_own_code(response)]
            if not found or any(code not in TRANSIENT for code in found):  # client.R1
                return Routed(response, attempts.may_repeat)
            attempts.may_repeat = True  # client.R2
        if response is None:
            raise unreachable(problems)
        if retry.is_over:
            return Routed(response, attempts.may_repeat)
        time.sleep(retry.next_pause())


class _Attempts(Generic[R]):
    """A request that is sent to one node after the other."""

    def __init__(self, cluster: Cluster, request: Request, response_type: type[R]) -> None:
        self.may_repeat = False  # it may have been carried out already
        self._cluster = cluster
        self._request = request
        self._response_type = response_type

    def ask(self, address: Address) -> R:
        """Send the request to one node; reconnect once if an earlier connection is broken."""
        was_open = self._cluster.is_connected(address)
        try:
            return self._ask(address)
        except ConnectionFailed:
            if not was_open:
                raise
        return self._ask(address)

    def _ask(self, address: Address) -> R:
        connection = self._cluster.connection_at(address)
        try:
            return connection.ask(self._request, self._response_type)
        except ConnectionFailed:
            self.may_repeat = True  # client.R2
            raise
        except NotServed as error:
            raise NotServed(f"{error}: it is another Kafka broker, or an older Quipu") from None


def unreachable(problems: Collection[ConnectionFailed]) -> ConnectionFailed:
    """The error for a cluster of which no node responds, with the reason for each address."""
    reasons = ", ".join(dict.fromkeys(
        str(each) if each.at is None else f"{each.at} ({each.why})" for each in problems))
    return ConnectionFailed(f"no broker responds at {reasons}")


def _nodes(cluster: Cluster) -> Iterator[Address]:
    """The addresses known now, and then the other brokers of the cluster's metadata."""
    known = cluster.addresses()
    yield from known
    if any(map(cluster.is_connected, known)):
        yield from (each for each in cluster.brokers().values() if each not in known)


def _own_code(response: Response) -> int:
    code: int = getattr(response, "error_code", Code.NONE)
    return code
