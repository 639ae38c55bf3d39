"""`quipu dev`: a cluster of real processes on this machine, for as long as the command runs.

Nodes are plain `quipu start` with a file of settings each, so one that was killed can be started
again by hand; `quipu dev` itself restarts nothing.  Started again on the same directory, it goes
on with the same cluster.
"""

import fcntl
import os
import secrets
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from quipu.cli import chain as chains
from quipu.cli import dev_layout, kafka
from quipu.cli.application import PLAIN
from quipu.cli.dev_layout import HOST, Layout, Wish
from quipu.cli.dev_processes import Child, Children
from quipu.cli.errors import CommandFailed
from quipu.cli.kafka import AsJson
from quipu.cli.output import show, tell
from quipu.model.settings import BROKER, parse

CHAIN_SECONDS_MAX: Final = 60.0
WATCH_SECONDS: Final = 0.2
_COLUMNS: Final = ("node", "id", "rack", "address", "peers", "metrics", "pid", "log")

app = typer.Typer(**{**PLAIN, "no_args_is_help": False})


@app.command()
def dev(
    *,
    directory: Annotated[
        Path, typer.Option("--dir", metavar="DIR", help="Where everything is kept.")
    ] = Path("quipu-dev"),
    nodes: Annotated[
        int | None, typer.Option(min=1, help="Nodes of each chain. [3]")
    ] = None,
    chain: Annotated[str | None, typer.Option(help="Name of the chain. [a]")] = None,
    chain_count: Annotated[
        int | None,
        typer.Option("--chains", min=1, max=dev_layout.CHAINS_MAX, help="How many chains. [1]"),
    ] = None,
    racks: Annotated[
        str | None,
        typer.Option(metavar="R,R,R", help="Racks that the nodes of a chain are in, in turn."),
    ] = None,
    base_port: Annotated[
        int | None,
        typer.Option(min=0, max=dev_layout.PORT_MAX,
                     help="Port of the first node; 0: any that are free. [9092]"),
    ] = None,
    settings: Annotated[
        list[str],
        typer.Option("--set", metavar="KEY=VALUE",
                     help="A setting of every node; may be given often."),
    ] = [],  # noqa: B006 typer copies it
    as_json: AsJson = False,
) -> None:
    """Run a cluster on this machine until Ctrl-C.

    Every node is a process of its own.  The directory keeps the cluster for the next time.
    """
    wish = Wish(
        node_count=nodes, chain=chain, chain_count=chain_count, base_port=base_port,
        racks=tuple(word.strip() for word in racks.split(",")) if racks else (),
        settings=_settings(settings))
    with _locked(directory), _interruptible():
        layout = _layout(directory, wish)
        _run(layout, directory, as_json=as_json)


def _run(layout: Layout, directory: Path, *, as_json: bool) -> None:
    children = Children()
    is_up = False
    try:
        children.start(layout, directory)
        for name, members in layout.chains.items():
            _make_chain(layout.bootstrap, name, members)
        is_up = True
        _tell_ready(layout, children, as_json=as_json)
        _watch(children)
    except KeyboardInterrupt:
        if not is_up:
            raise typer.Exit(128 + signal.SIGINT) from None
        tell("stopping")
    finally:
        children.stop()


def _make_chain(bootstrap: str, name: str, members: list[str]) -> None:
    try:
        chains.make(bootstrap, name, members, or_extend=True, wait_seconds=CHAIN_SECONDS_MAX)
    except chains.NotServing as error:  # with much to catch up on it takes its time
        tell(str(error))


def _layout(directory: Path, wish: Wish) -> Layout:
    found = dev_layout.load(directory)
    if found is None:
        layout = dev_layout.plan(wish, secrets.token_hex(16))
    else:
        layout = dev_layout.continued(found, wish, directory)
    dev_layout.check_ports(layout)
    dev_layout.save(layout, directory)
    return layout


def _tell_ready(layout: Layout, children: Children, *, as_json: bool) -> None:
    rows = [_row(child) for child in children]
    if not as_json:
        print(f"quipu ready {layout.bootstrap}")
    show(rows, _COLUMNS, as_json=as_json)
    sys.stdout.flush()
    tell("Ctrl-C stops the cluster; `quipu chain describe` tells how it is")


def _row(child: Child) -> dict[str, Any]:
    plan = child.plan
    return {
        "node": plan.name,
        "chain": plan.chain,
        "id": plan.node_id,
        "rack": plan.rack,
        "address": plan.address,
        "peers": f"{HOST}:{plan.peer_port}",
        "metrics": f"{HOST}:{plan.metrics_port}",
        "pid": child.pid,
        "log": str(child.log_path),
        "config": str(child.config_path),
    }


def _watch(children: Children) -> None:
    """Tell of every node that ends; return when none is left."""
    running = list(children)
    while running:
        time.sleep(WATCH_SECONDS)
        for child in [each for each in running if each.code is not None]:
            running.remove(child)
            tell(f"{child.end_text()}; to start it again: "
                 f"quipu start --config {child.config_path}")
    raise CommandFailed("no node is left")


@contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM is as good as Ctrl-C."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """One `quipu dev` at a time in a directory."""
    try:
        directory.mkdir(0o700, parents=True, exist_ok=True)
        lock = os.open(directory / "dev.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise CommandFailed(f"cannot use {directory}: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise CommandFailed(
            f"another quipu dev runs on {directory}; stop it, or choose another --dir") from None
    finally:
        os.close(lock)


def _settings(words: list[str]) -> dict[str, str]:
    """What --set says, checked before anything starts."""
    found = kafka.assignments(words, "--set")
    for name, value in found.items():
        parse(BROKER, name, value, f"--set {name}")
    return found
