"""`quipu sql`: the command and its options.

    quipu sql -e "SELECT …"      runs the statements, then ends
    quipu sql -f views.sql       the same from a file; `-` is standard input
    quipu sql                    a shell, on a terminal; else standard input is the script
    quipu sql --serve            keeps the views and sinks of the catalog up to date until stopped

The whole script is parsed before anything is started, so that a syntax error in its last line is
reported at once and nothing is changed.  Spark is imported after that.
"""

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from quipu.cli.application import PLAIN
from quipu.cli.cluster import DEFAULT_BOOTSTRAP, Bootstrap, assignments
from quipu.cli.errors import CommandFailed
from quipu.cli.output import note

if TYPE_CHECKING:
    from quipu.cli.sql.runner import EngineRunner

STATE: Final = Path("quipu-sql")
CATCH_UP_SECONDS: Final = 60.0
EVERY_SECONDS: Final = 10.0
EXIT_INTERRUPTED: Final = 128 + signal.SIGINT
EXTRA: Final = ("pyspark", "pyarrow", "prompt_toolkit")

app = typer.Typer(**{**PLAIN, "no_args_is_help": False})


@app.command()
def sql(
    *,
    execute: Annotated[
        str | None, typer.Option("--execute", "-e", metavar="TEXT", help="Statements to run.")
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", metavar="FILE", help="A file of statements; - is stdin."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="Master URL of Spark. [local[*]]")
    ] = None,
    state: Annotated[
        Path, typer.Option(metavar="DIR", help="Directory of the catalog, views and checkpoints.")
    ] = STATE,
    serve: Annotated[
        bool, typer.Option("--serve", help="Keep views up to date until Ctrl-C or SIGTERM.")
    ] = False,
    wait: Annotated[
        float,
        typer.Option(min=0, help="Longest wait, in seconds, for views to catch up at the end."),
    ] = CATCH_UP_SECONDS,
    every: Annotated[
        float, typer.Option(min=0.1, help="With --serve: seconds between progress reports.")
    ] = EVERY_SECONDS,
    settings: Annotated[
        list[str],
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of Spark; may be repeated."),
    ] = [],  # noqa: B006 typer copies it
    as_json: Annotated[bool, typer.Option("--json", help="Rows as JSON lines.")] = False,
) -> None:
    """Run SQL: create sources and materialized views of topics, and query them, on Spark.

    Without -e and -f: a shell on a terminal, else standard input is the script.  A source that
    names no broker reads from --bootstrap.
    """
    if execute is not None and file is not None:
        raise typer.BadParameter("give -e or -f, not both")
    spark = assignments(settings, "--set")
    _check_extra()
    script = _script(execute, file, serve=serve)
    if script is not None:
        _check(script, bootstrap)
    starting = _runner(state, bootstrap=bootstrap, master=master, settings=spark)
    with _interruptible() as stopping, starting as runner:
        if script is not None:
            _run(runner, script, as_json=as_json, wait=0 if serve else wait)
        if serve:
            _serve(runner, every=every, as_json=as_json, stopping=stopping)
        elif script is None:
            _shell(runner, state, as_json=as_json)


@contextlib.contextmanager
def _runner(
    state: Path, *, bootstrap: str, master: str | None, settings: dict[str, str]
) -> Iterator["EngineRunner"]:
    """The runner of the statements; Spark runs until the end of the block."""
    from quipu.cli.sql.runner import EngineRunner  # noqa: PLC0415
    from quipu.cli.sql.spark_engine import SparkEngine  # noqa: PLC0415 Spark, and only now

    try:
        state.mkdir(0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise CommandFailed(f"cannot use {state}: {error.strerror}") from None
    note(f"state: {state.resolve()}")
    engine = SparkEngine(state, bootstrap=bootstrap, master=master, settings=settings)
    with contextlib.closing(engine), EngineRunner(engine) as runner:
        yield runner


def _run(runner: "EngineRunner", script: str, *, as_json: bool, wait: float) -> None:
    from quipu.cli.sql.progress import wait_until_current  # noqa: PLC0415
    from quipu.cli.sql.runner import Interrupted  # noqa: PLC0415
    from quipu.cli.sql.statements import error_text, run_script  # noqa: PLC0415
    from quipu.pipeline.sql.errors import SqlError  # noqa: PLC0415

    try:
        run_script(runner, script, as_json=as_json)
        if wait and not wait_until_current(runner, wait):
            note(f"views are not up to date after {wait:g} s; the next run continues from there, "
                 "--serve keeps them running")
    except SqlError as error:
        note(f"quipu: {error_text(error)}")
        raise typer.Exit(1) from None
    except Interrupted:
        raise typer.Exit(EXIT_INTERRUPTED) from None


def _serve(
    runner: "EngineRunner", *, every: float, as_json: bool, stopping: threading.Event
) -> None:
    from quipu.cli.sql.serve import serve  # noqa: PLC0415

    serve(runner.engine, every_seconds=every, as_json=as_json, stopping=stopping)
    note("stopping")


def _shell(runner: "EngineRunner", state: Path, *, as_json: bool) -> None:
    from quipu.cli.sql.shell import Shell  # noqa: PLC0415

    Shell(runner, state, as_json=as_json).run()


def _script(execute: str | None, file: str | None, *, serve: bool) -> str | None:
    """The text to run; None for the shell, and for --serve alone."""
    if execute is not None:
        return execute
    if file is None and (serve or sys.stdin.isatty()):
        return None
    if file is None or file == "-":
        return sys.stdin.read()
    try:
        return Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise CommandFailed(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CommandFailed(f"{file} is not text in UTF-8") from None


def _check(script: str, bootstrap: str) -> None:
    """Parse every statement before the first one is run; a syntax error ends the command."""
    from quipu.cli.sql.statements import error_text  # noqa: PLC0415
    from quipu.pipeline.sql.errors import SqlError  # noqa: PLC0415
    from quipu.pipeline.sql.parser import parse  # noqa: PLC0415

    try:
        parse(script, bootstrap)
    except SqlError as error:
        note(f"quipu: {error_text(error)}")
        raise typer.Exit(1) from None


def _check_extra() -> None:
    missing = [name for name in EXTRA if find_spec(name) is None]
    if missing:
        raise CommandFailed(
            f"quipu sql needs {', '.join(missing)}: install them with pip install 'quipu[sql]'")


@contextlib.contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """Make SIGTERM end the block as Ctrl-C does; yields an event that SIGTERM sets."""
    stopping = threading.Event()

    def stop(number: int, frame: object) -> None:  # noqa: ARG001 a signal handler's
        stopping.set()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield stopping
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None
    finally:
        signal.signal(signal.SIGTERM, before)
