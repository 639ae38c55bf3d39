"""`quipu sql`: sources and views on Spark, from a script, at a prompt, or kept running.

    quipu sql -e "SELECT …"      carries the statements out, then ends
    quipu sql -f views.sql       the same from a file; `-` is standard input
    quipu sql                    a shell, on a terminal; else standard input is the script
    quipu sql --serve            keeps what the catalog holds up to date until it is stopped

The whole script is read and understood before anything is started, so that a mistake in its last
line costs no time and changes nothing.  Spark is imported after that.
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

from quipu.cli import kafka
from quipu.cli.application import PLAIN
from quipu.cli.errors import CommandFailed
from quipu.cli.kafka import Bootstrap
from quipu.cli.output import tell

if TYPE_CHECKING:
    from quipu.cli.sql_attending import Attendant

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
    bootstrap: Bootstrap = kafka.DEFAULT_BOOTSTRAP,
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="Spark's master. [local[*]]")
    ] = None,
    state: Annotated[
        Path, typer.Option(metavar="DIR", help="Where catalog, views and progress are kept.")
    ] = STATE,
    serve: Annotated[
        bool, typer.Option("--serve", help="Keep views up to date until Ctrl-C or SIGTERM.")
    ] = False,
    wait: Annotated[
        float,
        typer.Option(min=0, help="Seconds that views get to catch up before the command ends."),
    ] = CATCH_UP_SECONDS,
    every: Annotated[
        float, typer.Option(min=0.1, help="With --serve: seconds between lines of progress.")
    ] = EVERY_SECONDS,
    settings: Annotated[
        list[str],
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of Spark; may be given often."),
    ] = [],  # noqa: B006 typer copies it
    as_json: Annotated[bool, typer.Option("--json", help="Rows as JSON lines.")] = False,
) -> None:
    """Sources with metadata, and views of them, on Spark.

    Without statements: a shell on a terminal, else standard input is the script.  A source that
    names no broker reads from --bootstrap.
    """
    if execute is not None and file is not None:
        raise typer.BadParameter("give -e or -f, not both")
    spark = kafka.assignments(settings, "--set")
    _check_extra()
    script = _script(execute, file, serve=serve)
    if script is not None:
        _check(script, bootstrap)
    starting = _attendant(state, bootstrap=bootstrap, master=master, settings=spark)
    with _interruptible() as stopping, starting as attendant:
        if script is not None:
            _run(attendant, script, as_json=as_json, wait=0 if serve else wait)
        if serve:
            _serve(attendant, every=every, as_json=as_json, stopping=stopping)
        elif script is None:
            _shell(attendant, state, as_json=as_json)


@contextlib.contextmanager
def _attendant(
    state: Path, *, bootstrap: str, master: str | None, settings: dict[str, str]
) -> Iterator["Attendant"]:
    """Whoever carries statements out; Spark is there until the end of the block."""
    from quipu.cli.sql_attending import Attendant  # noqa: PLC0415
    from quipu.cli.sql_engine import SparkEngine  # noqa: PLC0415 Spark, and only now

    try:
        state.mkdir(0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise CommandFailed(f"cannot use {state}: {error.strerror}") from None
    tell(f"state: {state.resolve()}")
    engine = SparkEngine(state, bootstrap=bootstrap, master=master, settings=settings)
    with contextlib.closing(engine), Attendant(engine) as attendant:
        yield attendant


def _run(attendant: "Attendant", script: str, *, as_json: bool, wait: float) -> None:
    from quipu.cli.sql_attending import Interrupted  # noqa: PLC0415
    from quipu.cli.sql_progress import wait_until_current  # noqa: PLC0415
    from quipu.cli.sql_running import error_text, run_script  # noqa: PLC0415
    from quipu.pipeline.sql.errors import SqlError  # noqa: PLC0415

    try:
        run_script(attendant, script, as_json=as_json)
        if wait and not wait_until_current(attendant, wait):
            tell(f"views are not up to date after {wait:g} s; the next run goes on from there, "
                 "--serve keeps them running")
    except SqlError as error:
        tell(f"quipu: {error_text(error)}")
        raise typer.Exit(1) from None
    except Interrupted:
        raise typer.Exit(EXIT_INTERRUPTED) from None


def _serve(
    attendant: "Attendant", *, every: float, as_json: bool, stopping: threading.Event
) -> None:
    from quipu.cli.sql_serve import serve  # noqa: PLC0415

    serve(attendant.engine, every_seconds=every, as_json=as_json, stopping=stopping)
    tell("stopping")


def _shell(attendant: "Attendant", state: Path, *, as_json: bool) -> None:
    from quipu.cli.sql_shell import Shell  # noqa: PLC0415

    Shell(attendant, state, as_json=as_json).run()


def _script(execute: str | None, file: str | None, *, serve: bool) -> str | None:
    """What to run; None for the shell, and for --serve alone."""
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
        raise CommandFailed(f"{file} is not a text in UTF-8") from None


def _check(script: str, bootstrap: str) -> None:
    """Every statement is understood before the first one is carried out."""
    from quipu.cli.sql_running import error_text  # noqa: PLC0415
    from quipu.pipeline.sql.errors import SqlError  # noqa: PLC0415
    from quipu.pipeline.sql.parser import parse  # noqa: PLC0415

    try:
        parse(script, bootstrap)
    except SqlError as error:
        tell(f"quipu: {error_text(error)}")
        raise typer.Exit(1) from None


def _check_extra() -> None:
    missing = [name for name in EXTRA if find_spec(name) is None]
    if missing:
        raise CommandFailed(
            f"quipu sql needs {', '.join(missing)}: install them with pip install 'quipu[sql]'")


@contextlib.contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """SIGTERM is as good as Ctrl-C."""
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
