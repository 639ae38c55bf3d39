"""Carrying out statements and showing what they answer; the same in a script and in the shell."""

import sys

from quipu.cli.output import printable, tell
from quipu.cli.sql_answers import Answer, Changes, Rows, Told
from quipu.cli.sql_attending import Attendant, Interrupted
from quipu.cli.sql_output import ROWS_SHOWN_MAX, Writer
from quipu.pipeline.sql.lexer import Piece
from quipu.pipeline.sql.parser import pieces


def run_script(attendant: Attendant, text: str, *, as_json: bool) -> None:
    """Every statement, in order; the first that fails ends it."""
    is_terminal = sys.stdout.isatty()
    for piece in pieces(text):
        carry_out(attendant, text, piece, as_json=as_json, is_terminal=is_terminal)


def answer(attendant: Attendant, text: str, *, as_json: bool, is_terminal: bool) -> None:
    """A statement of the shell's own making."""
    (piece,) = pieces(text)
    carry_out(attendant, text, piece, as_json=as_json, is_terminal=is_terminal)


def carry_out(
    attendant: Attendant, text: str, piece: Piece, *, as_json: bool, is_terminal: bool
) -> None:
    """One statement: wait for it, show its answer."""
    engine = attendant.engine
    rows_max = ROWS_SHOWN_MAX if is_terminal and not as_json else None
    found: Answer = attendant.wait_for(
        lambda: engine.run(text, piece, rows_max), engine.activity)
    match found:
        case Told(told):
            tell(told)
        case Rows(headings, blocks):
            writer = Writer(headings, as_json=as_json, rows_max=rows_max)
            try:
                writer.write_all(blocks)
            except KeyboardInterrupt:
                raise Interrupted from None
        case Changes(headings, blocks):
            follow(Changes(headings, blocks), attendant, as_json=as_json)


def follow(changes: Changes, attendant: Attendant, *, as_json: bool) -> None:
    """Show changes as they come, until Ctrl-C."""
    writer = Writer(changes.headings, as_json=as_json)
    blocks = attendant.follow(changes.blocks, [])
    try:
        for block in blocks:
            if block:
                writer.write(block)
    except KeyboardInterrupt:
        raise Interrupted from None
    finally:
        blocks.close()


def error_text(error: Exception) -> str:
    """An error for the person who typed the statement; its lines stay lines."""
    return "\n".join(printable(line) for line in str(error).splitlines())
