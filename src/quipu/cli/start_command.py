"""The entry of `start` in the parser and the help text of all commands.

The command itself is in start.py, which has a parser of its own.
"""

import typer

from quipu.cli import start as start_module
from quipu.cli.application import PLAIN

app = typer.Typer(**{**PLAIN, "no_args_is_help": False})


@app.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
def start(context: typer.Context) -> None:
    """Run a node."""
    raise typer.Exit(start_module.main(context.args))
