"""A small, real DNS server on loopback, with a table that a test may change."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import cast

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

from quipu.model.settings_types import Address

Records = dict[tuple[str, str], list[str]]  # name and type: what it says


class NameServer(asyncio.DatagramProtocol):
    """Answers DNS queries from a table; names that are not in it do not exist."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.asked: list[tuple[str, str]] = []
        self.is_mute = False
        self._transport: asyncio.DatagramTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        query = dns.message.from_wire(data)
        (question,) = query.question
        name, kind = str(question.name), dns.rdatatype.to_text(question.rdtype)
        self.asked.append((name, kind))
        answer = dns.message.make_response(query)
        answer.flags |= dns.flags.RA
        texts = self.records.get((name, kind))
        if texts:
            answer.answer.append(dns.rrset.from_text(name, 5, "IN", kind, *texts))
        elif not any(known == name for known, _ in self.records):
            answer.set_rcode(dns.rcode.NXDOMAIN)
        if not self.is_mute:
            self._transport.sendto(answer.to_wire(), addr)


@asynccontextmanager
async def name_server(records: Records) -> AsyncIterator[tuple[NameServer, Address]]:
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(
        lambda: NameServer(records), local_addr=("127.0.0.1", 0))
    try:
        yield server, Address(*transport.get_extra_info("sockname"))
    finally:
        transport.close()


@contextmanager
def name_server_beside(records: Records) -> Iterator[Address]:
    """The same for a test without a loop: the server has a thread and a loop of its own."""
    loop = asyncio.new_event_loop()
    started: list[Address] = []
    ready, done = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with name_server(records) as (_, at):
            started.append(at)
            ready.set()
            await done.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    try:
        assert ready.wait(10)
        yield started[0]
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join(10)
        loop.close()
