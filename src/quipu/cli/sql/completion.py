"""The completions that the shell offers: keywords, names in the catalog, and columns in queries."""

from collections.abc import Callable, Iterator, Sequence

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from quipu.cli.sql.engine import Names
from quipu.pipeline.sql.completion import complete
from quipu.pipeline.sql.lexer import TokenizedStatement, TokenKind, split
from quipu.pipeline.sql.printer import quote_name
from quipu.pipeline.sql.statements import ObjectKind

COMMANDS = {
    "\\?": "show this list",
    "\\d": "list the objects in the catalog; \\d NAME: the columns of a source or view",
    "\\progress": "show messages, rates and lag of every view and sink",
    "\\timing": "switch on or off that the time of each statement is shown",
    "\\q": "leave, as Ctrl-D does",
}


class SqlCompleter(Completer):
    """Completes statements and the shell's own commands."""

    def __init__(
        self, names: Callable[[], Names], columns: Callable[[str], Sequence[str]]
    ) -> None:
        self._names = names
        self._columns = columns

    def get_completions(
        self, document: Document, complete_event: CompleteEvent  # noqa: ARG002 Completer's
    ) -> Iterator[Completion]:
        text = document.text_before_cursor
        if text.startswith("\\"):
            words = self._after_command(text)
            begun = text if " " not in text else text.rpartition(" ")[2]
        else:
            words = self._words(text)
            begun = begun_word(text)
        for word in words:
            yield Completion(word, start_position=-len(begun))

    def _after_command(self, text: str) -> list[str]:
        command, blank, begun = text.partition(" ")
        if not blank:
            return [each for each in COMMANDS if each.startswith(text)]
        if command != "\\d":
            return []
        names = self._names()
        readable = [*names.get(ObjectKind.SOURCE, ()), *names.get(ObjectKind.VIEW, ())]
        return [name for name in map(quote_name, readable) if name.startswith(begun)]

    def _words(self, text: str) -> list[str]:
        names = self._names()
        found = complete(text, names)
        pieces = split(text)
        if pieces and not pieces[-1].ended and pieces[-1].query_start is not None:
            begun = begun_word(text).lower()
            columns = self._columns_in(pieces[-1], names)
            found = [*(each for each in columns if each.lower().startswith(begun)), *found]
        return list(dict.fromkeys(found))

    def _columns_in(self, piece: TokenizedStatement, names: Names) -> list[str]:
        """Columns of the relations that a query names so far."""
        readable = {*names.get(ObjectKind.SOURCE, ()), *names.get(ObjectKind.VIEW, ())}
        written = {token.value if token.kind is TokenKind.QUOTED else token.value.lower()
                   for token in piece.tokens if token.kind in (TokenKind.WORD, TokenKind.QUOTED)}
        return [quote_name(column) for name in sorted(readable & written)
                for column in self._columns(name)]


def begun_word(text: str) -> str:
    """The word that the text ends with, if it ends with one."""
    pieces = split(text)
    if not pieces or pieces[-1].ended:
        return ""
    last = pieces[-1].tokens[-2]
    return last.value if last.kind is TokenKind.WORD and last.span.end == len(text) else ""


def is_finished(text: str) -> bool:
    """Can the text be run: is it empty, a command of the shell, or ended by a semicolon?"""
    stripped = text.strip()
    if not stripped or stripped.startswith("\\"):
        return True
    pieces = split(text)
    return not pieces or pieces[-1].ended
