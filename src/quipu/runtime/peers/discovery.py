"""Finds the addresses of other nodes, at regular intervals, and has them dialled.

    static:HOST:PORT,HOST:PORT    these addresses
    srv:NAME                      SRV records: a host and a port for each node
    a:NAME:PORT                   A and AAAA records: an address for each node, all with one port

The addresses come without node ids: a node identifies itself in its hello (hello.py).  A failure of
DNS is logged once, and DNS is queried again in the next round.

dnspython is imported when it is first needed, because the import is slow.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from quipu.model.errors import ErrorKind, QuipuError, SettingError
from quipu.model.settings_types import ADDRESS, Address

if TYPE_CHECKING:
    from dns.asyncresolver import Resolver

LOOK_UP_SECONDS_MAX: Final = 5.0
FOUND_MAX: Final = 1_000
_ALLOWED: Final = "must be static:HOST:PORT,HOST:PORT or srv:NAME or a:NAME:PORT"

_log = logging.getLogger(__name__)


class NothingDiscovered(QuipuError):
    """A DNS query failed."""

    kind = ErrorKind.RETRY


class DiscoverySource(NamedTuple):
    """A parsed peer.discovery: fixed `addresses`, or a `name` in DNS."""

    addresses: tuple[Address, ...] = ()
    name: str = ""
    port: int = 0  # of every node; 0: SRV records have the ports


def parse_source(text: str) -> DiscoverySource:
    """Parse `peer.discovery`; SettingError if it is not valid."""
    how, _, what = text.partition(":")
    match how:
        case "static":
            return DiscoverySource(tuple(_address(item, text) for item in what.split(",")))
        case "srv" if what and ":" not in what:
            return DiscoverySource(name=what)
        case "a":
            name, port = _address(what, text)
            return DiscoverySource(name=name, port=port)
        case _:
            raise SettingError(f"peer.discovery={text}: {_ALLOWED}")


class Discovery:
    """Passes the addresses that it finds to `meet`; `run` continues until it is cancelled."""

    def __init__(
        self, where: str, meet: Callable[[str, int], None], *,
        interval_seconds: float, nameserver: Address | None = None,
    ) -> None:
        self._source = parse_source(where)
        self._where = where
        self._meet = meet
        self._interval_seconds = interval_seconds
        self._nameserver = nameserver  # instead of the system's
        self._trouble = ""

    async def run(self) -> None:
        """Look for addresses at regular intervals, and pass them to `meet`."""
        while True:
            try:
                found = await self.look()
            except QuipuError as error:
                self._log_change(str(error))
            else:
                self._log_change("")
                for address in found:
                    self._meet(*address)
            await asyncio.sleep(self._interval_seconds)

    async def look(self) -> list[Address]:
        """All addresses found now; raises `NothingDiscovered`."""
        source = self._source
        if source.addresses:
            return list(source.addresses)
        import dns.exception  # noqa: PLC0415 the import takes a third of a second

        try:
            resolver = self._resolver()
            async with asyncio.timeout(LOOK_UP_SECONDS_MAX):
                if source.port:
                    hosts = [(source.name, source.port)]
                else:
                    hosts = await _services(resolver, source.name)
                found = [Address(host, port) for name, port in hosts[:FOUND_MAX]
                         for host in await _hosts(resolver, name)]
        except (dns.exception.DNSException, OSError) as error:  # timeouts are OSErrors
            why = str(error) or f"no response within {LOOK_UP_SECONDS_MAX:g} s"
            raise NothingDiscovered(why) from None
        return sorted(set(found))[:FOUND_MAX]

    def _resolver(self) -> "Resolver":
        """A new resolver for each round, so that changes of the system's settings take effect."""
        from dns.asyncresolver import Resolver  # noqa: PLC0415 as above

        if self._nameserver is None:
            resolver = Resolver()
        else:
            resolver = Resolver(configure=False)
            resolver.nameservers = [self._nameserver.host]
            resolver.port = self._nameserver.port
        resolver.lifetime = LOOK_UP_SECONDS_MAX
        return resolver

    def _log_change(self, trouble: str) -> None:
        """Log that looking nodes up began to fail, or works again."""
        if trouble and trouble != self._trouble:
            _log.warning("peer.discovery=%s found no nodes: %s", self._where, trouble)
        elif self._trouble and not trouble:
            _log.info("peer.discovery=%s works again", self._where)
        self._trouble = trouble


async def _services(resolver: "Resolver", name: str) -> list[tuple[str, int]]:
    answer = await resolver.resolve(name, "SRV", search=True)
    return [(str(record.target), record.port) for record in answer
            if record.port and str(record.target) != "."]


async def _hosts(resolver: "Resolver", name: str) -> list[str]:
    """The IPv4 and IPv6 addresses of a name."""
    found: list[str] = []
    for kind in ("A", "AAAA"):
        answer = await resolver.resolve(name, kind, search=True, raise_on_no_answer=False)
        found += _texts(answer.rrset)
    return found


def _texts(records: Iterable[object] | None) -> list[str]:
    return [str(record) for record in records or ()]


def _address(text: str, where: str) -> Address:
    try:
        found = ADDRESS.parse(text.strip())
    except ValueError:
        found = None
    if not isinstance(found, Address) or not found.port or not text.strip().rpartition(":")[0]:
        raise SettingError(f"peer.discovery={where}: {_ALLOWED}")
    return found
