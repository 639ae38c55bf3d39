"""The parser of all commands but `start`; the module of a command is imported when it is used."""

import sys
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from quipu import __version__
from quipu.cli.errors import CommandFailed
from quipu.cli.main import COMMANDS, EXIT_FAILED, cannot_write, load
from quipu.cli.output import printable
from quipu.model.errors import QuipuError
from quipu.model.nearest import nearest

# Help and errors without markup: they read the same on a terminal, in a log and in a mail.
PLAIN: Final[dict[str, Any]] = {
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "add_completion": False,
    "no_args_is_help": True,
    "context_settings": {"help_option_names": ["-h", "--help"], "max_content_width": 100},
}


class LazyGroup(TyperGroup):
    """The commands in the table of `main`; turns their errors into messages and exit codes."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401, ARG002 the parser's own types
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401, ARG002
        if cmd_name not in COMMANDS:
            return None
        command = typer.main.get_command(load(cmd_name))
        command.name = cmd_name
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            near = nearest(name, COMMANDS)
            hint = f"did you mean {near}?" if near else f"there are {', '.join(COMMANDS)}"
            ctx.fail(f"no such command: {name}; {hint}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401
        try:
            return super().invoke(ctx)
        except (CommandFailed, QuipuError) as error:
            print(f"quipu: {printable(str(error))}", file=sys.stderr)
            raise typer.Exit(EXIT_FAILED) from None
        except OSError as error:  # of standard output: commands handle errors of files themselves
            raise typer.Exit(cannot_write(error)) from None


def command() -> Any:  # noqa: ANN401 the parser's type is private to it
    """The `quipu` command, ready to parse arguments."""
    app = typer.Typer(cls=LazyGroup, **PLAIN)
    app.callback()(_quipu)
    return typer.main.get_command(app)


def _quipu(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """A Kafka-compatible log.  `quipu COMMAND --help` describes one command."""
    if version:
        print(f"quipu {__version__}")
        raise typer.Exit(0)
