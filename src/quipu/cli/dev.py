"""`quipu dev`: a cluster of real processes on this machine, for as long as the command runs.

Each node is a `quipu start` with a settings file of its own, so one that was killed can be started
again by hand; `quipu dev` itself restarts nothing.  Started again on the same directory, it
continues with the same cluster.
"""

import fcntl
import os
import secrets
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from quipu.cli import chain as chains
from quipu.cli import dev_layout
from quipu.cli.application import PLAIN
from quipu.cli.cluster import AsJson, assignments
from quipu.cli.dev_layout import DevLayout, DevOptions, NodePlan
from quipu.cli.errors import CommandFailed
from quipu.cli.output import note, printable, show
from quipu.launch.group import NodeGroup
from quipu.launch.ports import HOST
from quipu.launch.postgres import PostgresServer, postgres_server
from quipu.launch.process import NodeFailed, NodeProcess, start_command
from quipu.model.settings import BROKER, parse

CHAIN_SECONDS_MAX: Final = 60.0
WATCH_SECONDS: Final = 0.2
LOG_TAIL_LINES: Final = 10
_COLUMNS: Final = ("node", "id", "rack", "address", "peers", "metrics", "pid", "log")

app = typer.Typer(**{**PLAIN, "no_args_is_help": False})


@app.command()
def dev(
    *,
    directory: Annotated[
        Path, typer.Option("--dir", metavar="DIR", help="Directory of the cluster's data and logs.")
    ] = Path("quipu-dev"),
    nodes: Annotated[
        int | None, typer.Option(min=1, help="Nodes of each chain. [3]")
    ] = None,
    chain: Annotated[str | None, typer.Option(help="Name of the chain. [a]")] = None,
    chain_count: Annotated[
        int | None,
        typer.Option("--chains", min=1, max=dev_layout.CHAINS_MAX, help="Number of chains. [1]"),
    ] = None,
    racks: Annotated[
        str | None,
        typer.Option(metavar="R,R,R", help="Racks, assigned to the nodes of a chain in turn."),
    ] = None,
    base_port: Annotated[
        int | None,
        typer.Option(min=0, max=dev_layout.PORT_MAX,
                     help="Port of the first node; 0: any free ports. [9092]"),
    ] = None,
    diskless: Annotated[
        bool,
        typer.Option("--diskless", help="Let topics be diskless: the nodes share an object store "
                     "in DIR, and a control plane in PostgreSQL, which is started with them unless "
                     "--set diskless.control.plane.url=URL names another."),
    ] = False,
    settings: Annotated[
        list[str],
        typer.Option("--set", metavar="KEY=VALUE",
                     help="A setting of every node; may be repeated."),
    ] = [],  # noqa: B006 typer copies it
    as_json: AsJson = False,
) -> None:
    """Run a cluster on this machine until Ctrl-C.

    Every node is a process of its own.  The same --dir continues with the same cluster.
    """
    options = DevOptions(
        node_count=nodes, chain=chain, chain_count=chain_count, base_port=base_port,
        racks=tuple(word.strip() for word in racks.split(",")) if racks else (),
        settings=_settings([*_diskless_words(diskless), *settings]))
    with _locked(directory), _interruptible():
        layout = _layout(directory, options)
        _run(layout, directory, as_json=as_json)


def _run(layout: DevLayout, directory: Path, *, as_json: bool) -> None:
    """Run the nodes and what they need; the nodes end first."""
    is_up = False
    postgres: PostgresServer | None = None
    with ExitStack() as stack:
        try:
            if layout.needs_postgres:
                postgres = stack.enter_context(
                    postgres_server(directory / dev_layout.CONTROL_PLANE_NAME))
            nodes = stack.enter_context(NodeGroup())
            _start(nodes, layout, directory)
            for name, members in layout.chains.items():
                _make_chain(layout.bootstrap, name, members)
            is_up = True
            _show_ready(nodes, layout, directory, as_json=as_json)
            _watch(nodes, directory, postgres)
        except KeyboardInterrupt:
            if not is_up:
                raise typer.Exit(128 + signal.SIGINT) from None
            note("stopping")


def _start(nodes: NodeGroup, layout: DevLayout, directory: Path) -> None:
    """Start every node, then wait until each one serves."""
    for plan in layout.nodes:
        command = start_command("--config", str(_config_path(directory, plan.name)))
        nodes.start(plan.name, command, directory / f"{plan.name}.log")
    for node in nodes:
        try:
            node.await_ready()
        except NodeFailed:
            for line in node.log_text().splitlines()[-LOG_TAIL_LINES:]:
                note(f"{node.name}: {printable(line)}")
            what = f"{node.name} is not ready" if node.code is None else node.end_text()
            raise CommandFailed(f"{what}; its whole log: {node.log_path}") from None


def _make_chain(bootstrap: str, name: str, members: list[str]) -> None:
    try:
        chains.make(bootstrap, name, members, or_extend=True, wait_seconds=CHAIN_SECONDS_MAX)
    except chains.NotServing as error:  # a member with much to catch up on may take longer
        note(str(error))


def _layout(directory: Path, options: DevOptions) -> DevLayout:
    found = dev_layout.load(directory)
    if found is None:
        layout = dev_layout.plan(options, secrets.token_hex(16))
    else:
        layout = dev_layout.continued(found, options, directory)
    dev_layout.check_ports(layout)
    dev_layout.save(layout, directory)
    return layout


def _show_ready(nodes: NodeGroup, layout: DevLayout, directory: Path, *, as_json: bool) -> None:
    rows = [_row(plan, node, directory) for plan, node in zip(layout.nodes, nodes, strict=True)]
    if not as_json:
        print(f"quipu ready {layout.bootstrap}")
    show(rows, _COLUMNS, as_json=as_json)
    sys.stdout.flush()
    note(f"for other commands:  export QUIPU_BOOTSTRAP={layout.bootstrap}")
    if layout.is_diskless:
        note("a diskless topic:    quipu topic create events --partitions 6 "
             "--config diskless.enable=true\n"
             "where it is:         quipu placement show events; quipu topic describe events")
    note("Ctrl-C stops the cluster; `quipu chain describe` shows its state")


def _row(plan: NodePlan, node: NodeProcess, directory: Path) -> dict[str, Any]:
    return {
        "node": plan.name,
        "chain": plan.chain,
        "id": plan.node_id,
        "rack": plan.rack,
        "address": plan.address,
        "peers": f"{HOST}:{plan.peer_port}",
        "metrics": f"{HOST}:{plan.metrics_port}",
        "pid": node.pid,
        "log": str(node.log_path),
        "config": str(_config_path(directory, plan.name)),
    }


def _config_path(directory: Path, name: str) -> Path:
    return directory / f"{name}.properties"


def _watch(nodes: NodeGroup, directory: Path, postgres: PostgresServer | None) -> None:
    """Report every process that ends; fail when no node is left."""
    running = list(nodes)
    while running:
        time.sleep(WATCH_SECONDS)
        if postgres is not None and postgres.code is not None:
            note(f"PostgreSQL (process {postgres.pid}) ended with exit code {postgres.code}: "
                 "diskless topics wait for it; to start it again, start quipu dev again; its log: "
                 f"{postgres.log_path}")
            postgres = None
        for node in [each for each in running if each.code is not None]:
            running.remove(node)
            note(f"{node.end_text()}; to start it again: "
                 f"quipu start --config {_config_path(directory, node.name)}")
    raise CommandFailed("no node is left")


@contextmanager
def _interruptible() -> Iterator[None]:
    """Make SIGTERM end the block as Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory: only one `quipu dev` may use it at a time."""
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


def _diskless_words(is_diskless: bool) -> list[str]:
    return [f"{dev_layout.DISKLESS_ENABLE}=true"] if is_diskless else []


def _settings(words: list[str]) -> dict[str, str]:
    """The settings of --set, checked before anything starts."""
    found = assignments(words, "--set")
    for name, value in found.items():
        parse(BROKER, name, value, f"--set {name}")
    return found
