"""Limits the number and the rate of connections, in total and per address.

The limits are Kafka's.  A connection above a number is refused; one above a rate is accepted and
served only when the rate allows it, and refused if that is more than DELAY_SECONDS_MAX ahead.

Invariants
    runtime.A1  one address has at most `per_address_max` connections, or its own override; an IPv6
                address counts as its /64 network, because one machine usually has all of it
    runtime.A2  BURST_SECONDS times a rate may connect at once; after that the rate is enforced
    runtime.A3  a refused connection does not count towards any rate: clients that are refused do
                not delay others
    runtime.A4  the addresses held in memory are bounded by the number and rate of connections

No I/O: time is passed in.
"""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from quipu.runtime.net.limits import (
    MAX_CONNECTIONS,
    MAX_PER_IP,
    MAX_RATE,
    MAX_RATE_PER_IP,
    UNLIMITED,
    NetLimits,
)

BURST_SECONDS: Final = 10.0  # Kafka averages over ten samples of one second
DELAY_SECONDS_MAX: Final = 1.0
PRUNE_COUNT_MIN: Final = 1024
_IPV6_NETWORK_BITS: Final = 64


class Verdict(NamedTuple):
    """Whether an accepted connection is served, and after which delay."""

    refused: str = ""  # the setting that forbids it; empty if it is served
    delay_seconds: float = 0.0  # before it is served


@dataclass(slots=True)
class _Rate:
    """A token bucket, stored as the time at which it is full again (runtime.A2)."""

    full_at: float = 0.0

    def delay(self, rate: int, now: float) -> float:
        """Seconds that the next connection would have to wait."""
        return max(0.0, self.full_at + 1 / rate - now - BURST_SECONDS)

    def take(self, rate: int, now: float) -> None:
        self.full_at = max(self.full_at, now) + 1 / rate


@dataclass(slots=True)
class _Address:
    """The connections of one address, and their rate."""

    count: int = 0
    rate: _Rate = field(default_factory=_Rate)


class Admission:
    """Counts connections per address, and decides about new ones."""

    def __init__(self, limits: NetLimits) -> None:
        self._limits = limits
        self._rate = _Rate()
        self._addresses: dict[str, _Address] = {}
        self._prune_at = PRUNE_COUNT_MIN

    def admit(self, host: str, open_count: int, now: float) -> Verdict:
        """Decide about a connection of `host` while `open_count` are open; count it if served."""
        limits = self._limits
        key = address_key(host)
        address = self._addresses.get(key) or _Address()
        if address.count >= limits.per_address_overrides.get(key, limits.per_address_max):
            return Verdict(MAX_PER_IP)
        if open_count >= limits.connections_max:
            return Verdict(MAX_CONNECTIONS)
        delay = 0.0
        rates = ((address.rate, limits.rate_per_address_max, MAX_RATE_PER_IP),
                 (self._rate, limits.rate_max, MAX_RATE))
        for rate, rate_max, name in rates:
            if rate_max < UNLIMITED:
                delay = max(delay, rate.delay(rate_max, now))
                if delay > DELAY_SECONDS_MAX:
                    return Verdict(name)  # runtime.A3
        for rate, rate_max, _ in rates:
            if rate_max < UNLIMITED:
                rate.take(rate_max, now)
        address.count += 1
        self._addresses[key] = address
        if len(self._addresses) > self._prune_at:
            self._prune(now)
        return Verdict(delay_seconds=delay)

    def leave(self, host: str, now: float) -> None:
        """Stop counting an admitted connection, which has closed."""
        key = address_key(host)
        address = self._addresses[key]
        address.count -= 1
        assert address.count >= 0, host
        if not address.count and address.rate.full_at <= now:
            del self._addresses[key]

    def _prune(self, now: float) -> None:
        """Forget addresses without connections whose rate has recovered (runtime.A4)."""
        self._addresses = {key: address for key, address in self._addresses.items()
                           if address.count or address.rate.full_at > now}
        self._prune_at = max(PRUNE_COUNT_MIN, 2 * len(self._addresses))


def address_key(host: str) -> str:
    """The key under which connections of `host` are counted (runtime.A1)."""
    if ":" not in host:
        return host
    import ipaddress  # noqa: PLC0415 the import takes milliseconds, and only IPv6 needs it

    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    network = int(address) >> _IPV6_NETWORK_BITS << _IPV6_NETWORK_BITS
    return f"{ipaddress.IPv6Address(network)}/{_IPV6_NETWORK_BITS}"
