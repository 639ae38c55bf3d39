"""Hosts of a test's own: network namespaces on a bridge, where root may make them.

    with Hosts(3) as hosts:
        hosts.prefix(0)          what a command begins with that shall run on host 0
        hosts.address(0)         where it is reached, from here and from the other hosts
        hosts.cut(0, 1)          packets of host 0 for host 1 are lost; the other way is not touched
        hosts.heal()

A cut is a wrong hardware address for the other host: packets are sent and arrive nowhere, and
neither side gets an error.  Only the bridge that is made here is changed, no other interface.
"""

import contextlib
import os
import secrets
import shutil
import subprocess
from types import TracebackType
from typing import Self

NOWHERE = "02:00:00:00:00:ff"  # nobody has this hardware address
HERE = -1  # the host that the test runs on


def can_make_hosts() -> bool:
    """Are we root, on a machine with iproute2 that allows namespaces?"""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"q{secrets.token_hex(3)}"
    made = _try("netns", "add", name)
    if made:
        _try("netns", "del", name)
    return made


class Hosts:
    """Some hosts, gone when the block ends."""

    def __init__(self, count: int) -> None:
        self._tag = secrets.token_hex(2)
        self._count = count
        self._net = ""
        self._cuts: set[tuple[int, int]] = set()

    @property
    def _bridge(self) -> str:
        return f"q{self._tag}"

    def _name(self, host: int) -> str:
        return f"q{self._tag}-{host}"

    def address(self, host: int) -> str:
        return f"{self._net}.{254 if host == HERE else host + 1}"

    def prefix(self, host: int) -> list[str]:
        return ["ip", "netns", "exec", self._name(host)]

    def __enter__(self) -> Self:
        try:
            self._make()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _make(self) -> None:
        taken = subprocess.run(["ip", "-4", "-o", "addr"], capture_output=True, text=True,
                               check=True).stdout
        nets = (f"10.{200 + secrets.randbelow(50)}.{secrets.randbelow(250)}" for _ in range(1000))
        self._net = next(net for net in nets if f" {net}." not in taken)
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("addr", "add", f"{self.address(HERE)}/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        for host in range(self._count):
            name, inner = self._name(host), f"i{self._tag}-{host}"
            _ip("netns", "add", name)
            _ip("link", "add", name, "type", "veth", "peer", "name", inner)
            _ip("link", "set", name, "master", self._bridge)
            _ip("link", "set", name, "up")
            _ip("link", "set", inner, "netns", name)
            _ip("-n", name, "link", "set", inner, "name", "eth0")
            _ip("-n", name, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            _ip("-n", name, "link", "set", "lo", "up")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for host in range(self._count):
            _try("link", "del", self._name(host))
            _try("netns", "del", self._name(host))
        _try("link", "del", self._bridge)

    # -- cuts

    def cut(self, source: int, target: int) -> None:
        """Nothing that `source` sends reaches `target`."""
        self._cuts.add((source, target))
        _ip(*self._at(source), "neigh", "replace", self.address(target), "lladdr", NOWHERE,
            "dev", self._device(source), "nud", "permanent")

    def isolate(self, host: int, *, from_here: bool = False) -> None:
        """Cut a host off from all others, both ways; from the test too, if asked."""
        for other in [*range(self._count), *([HERE] if from_here else [])]:
            if other != host:
                self.cut(host, other)
                self.cut(other, host)

    def heal(self) -> None:
        """Every way is open."""
        while self._cuts:
            source, target = self._cuts.pop()
            _ip(*self._at(source), "neigh", "del", self.address(target),
                "dev", self._device(source))

    def _at(self, host: int) -> list[str]:
        return [] if host == HERE else ["-n", self._name(host)]

    def _device(self, host: int) -> str:
        return self._bridge if host == HERE else "eth0"


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"


def _try(*words: str) -> bool:
    with contextlib.suppress(OSError):
        return subprocess.run(["ip", *words], capture_output=True, check=False).returncode == 0
    return False
