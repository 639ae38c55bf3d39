"""Runs statements and shows their results; the same in a script and in the shell."""

import sys

from quipu.cli.output import note, printable
from quipu.cli.sql.engine import ResultRows, RowChanges, StatementDone, StatementResult
from quipu.cli.sql.output import ROWS_SHOWN_MAX, Writer
from quipu.cli.sql.runner import EngineRunner, Interrupted
from quipu.pipeline.sql.lexer import TokenizedStatement
from quipu.pipeline.sql.parser import pieces


def run_script(runner: EngineRunner, text: str, *, as_json: bool) -> None:
    """Run every statement of a script in order; the first error ends the script."""
    is_terminal = sys.stdout.isatty()
    for piece in pieces(text):
        run_statement(runner, text, piece, as_json=as_json, is_terminal=is_terminal)


def run_text(runner: EngineRunner, text: str, *, as_json: bool, is_terminal: bool) -> None:
    """Run the one statement in a text."""
    (piece,) = pieces(text)
    run_statement(runner, text, piece, as_json=as_json, is_terminal=is_terminal)


def run_statement(
    runner: EngineRunner, text: str, piece: TokenizedStatement, *, as_json: bool, is_terminal: bool
) -> None:
    """Run one statement of a script, wait for it, and show its result."""
    engine = runner.engine
    rows_max = ROWS_SHOWN_MAX if is_terminal and not as_json else None
    result: StatementResult = runner.wait_for(
        lambda: engine.run(text, piece, rows_max), engine.activity)
    match result:
        case StatementDone(text=sentence):
            note(sentence)
        case ResultRows(headings, blocks):
            writer = Writer(headings, as_json=as_json, rows_max=rows_max)
            try:
                writer.write_all(blocks)
            except KeyboardInterrupt:
                raise Interrupted from None
        case RowChanges(headings, blocks):
            follow(RowChanges(headings, blocks), runner, as_json=as_json)


def follow(changes: RowChanges, runner: EngineRunner, *, as_json: bool) -> None:
    """Show changes as they come, until Ctrl-C."""
    writer = Writer(changes.headings, as_json=as_json)
    blocks = runner.follow(changes.blocks, [])
    try:
        for block in blocks:
            if block:
                writer.write(block)
    except KeyboardInterrupt:
        raise Interrupted from None
    finally:
        blocks.close()


def error_text(error: Exception) -> str:
    """The text of an error for a terminal; its line breaks are kept."""
    return "\n".join(printable(line) for line in str(error).splitlines())
