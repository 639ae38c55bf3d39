"""Finds a command in the table of commands and imports only its module.

`start` does not use the parser of the other commands: a node should be ready within a few hundred
milliseconds, and importing the parser and a Kafka client takes longer.
"""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import typer

COMMANDS: Final = {  # in the order of the help text; each module has an `app`
    "start": "quipu.cli.start_command",
    "dev": "quipu.cli.dev",
    "config": "quipu.cli.config",
    "chain": "quipu.cli.chain",
    "quorum": "quipu.cli.quorum",
    "topic": "quipu.cli.topic",
    "group": "quipu.cli.group",
    "produce": "quipu.cli.produce",
    "consume": "quipu.cli.consume",
    "sql": "quipu.cli.sql.command",
    "log": "quipu.cli.log",
    "remote": "quipu.cli.remote",
    "diskless": "quipu.cli.diskless",
    "placement": "quipu.cli.placement",
    "bench": "quipu.bench.commands",
}
EXIT_FAILED: Final = 1
EXIT_BROKEN_PIPE: Final = 141  # as a shell reports a program that SIGPIPE ended


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _run(words)
        print(end="", flush=True)  # if the last write fails, so does the command
    except OSError as error:
        return cannot_write(error)
    return code


def cannot_write(error: OSError) -> int:
    """Report that the output could not be written; returns the exit code for it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # so that the last flush does not fail too
    if isinstance(error, BrokenPipeError):
        return EXIT_BROKEN_PIPE  # the reader of the output has closed it
    print(f"quipu: {error.strerror or error}", file=sys.stderr)
    return EXIT_FAILED


def _run(words: list[str]) -> int:
    if words[:1] == ["start"]:
        from quipu.cli import start  # noqa: PLC0415 only what this command needs

        return start.main(words[1:])
    if words == ["--version"]:
        from quipu import __version__  # noqa: PLC0415

        print(f"quipu {__version__}")
        return 0
    from quipu.cli.application import command  # noqa: PLC0415

    try:
        command().main(words, prog_name="quipu")
    except SystemExit as end:  # how the parser returns an exit code
        return end.code if isinstance(end.code, int) else EXIT_FAILED
    return 0


def load(name: str) -> "typer.Typer":
    """The typer application of a command in the table."""
    app: typer.Typer = importlib.import_module(COMMANDS[name]).app
    return app
