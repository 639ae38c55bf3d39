"""`TokenCursor`: a position in the tokens of one statement, and which tokens were expected there.

Every word that the grammar looks for (`accept`, `expect`, `name`, …) is recorded for the token at
the position.  So an error can suggest any word that would have been right there, and completion
needs no grammar of its own: it parses the text so far and reads the words expected next.
"""

import math
from dataclasses import dataclass, field

from quipu.model.nearest import nearest
from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.lexer import Token, TokenizedStatement, TokenKind
from quipu.pipeline.sql.secrets import Secret, is_secret, option_name, secret_spans
from quipu.pipeline.sql.statements import Name, ObjectKind, Option, Value
from quipu.pipeline.sql.text import TextSpan, in_one_line, one_of

# Words that cannot be names without quotes, so that a missing name is noticed where it is missing.
RESERVED = frozenset({
    "AS", "CREATE", "DROP", "ENVELOPE", "EXISTS", "EXPLAIN", "FORMAT", "FROM", "IF", "INCLUDE",
    "INTO", "NOT", "PRIMARY", "SELECT", "SHOW", "SUBSCRIBE", "VALUES", "WITH"})
NAME_LENGTH_MAX = 255
LIST_LENGTH_MAX = 100_000
_SYMBOLS = {"(": "left parenthesis", ")": "right parenthesis", "[": "left bracket",
            "]": "right bracket", ",": "comma", "=": "equals sign", ";": "semicolon"}


@dataclass
class ExpectedWords:
    """The words and kinds of names that the grammar accepts at a token."""

    words: dict[str, None] = field(default_factory=dict)
    names: set[ObjectKind] = field(default_factory=set)


class TokenCursor:
    """The tokens of a statement, and the position of the parser."""

    def __init__(self, text: str, piece: TokenizedStatement, broker: str | None = None) -> None:
        self.text = text
        self.piece = piece
        self.broker = broker  # the broker of statements that name none
        self.index = 0
        self.known: set[str] = set()  # words that the grammar has looked for anywhere
        self._wanted = ExpectedWords()
        self._wanted_index = 0

    # -- looking ahead

    @property
    def token(self) -> Token:
        return self.piece.tokens[self.index]

    @property
    def at_end(self) -> bool:
        return self.token.kind is TokenKind.END

    def span_from(self, start: TextSpan) -> TextSpan:
        """Everything from `start` to the last token taken."""
        return start.to(self.piece.tokens[max(0, self.index - 1)].span)

    def sees(self, *words: str) -> bool:
        """Are these the next words?  Nothing is taken."""
        tokens = self.piece.tokens[self.index:self.index + len(words)]
        return len(tokens) == len(words) and all(
            token.is_word(word) for token, word in zip(tokens, words, strict=True))

    def would_accept(self, *words: str) -> bool:
        """Is one of these next?  They are recorded as expected; nothing is taken."""
        for word in words:
            self._want(word)
        return any(self.sees(word) for word in words)

    def sees_symbol(self, symbol: str) -> bool:
        return self.token.is_symbol(symbol)

    @property
    def wanted(self) -> ExpectedWords:
        """The words and names that the grammar has looked for at this token."""
        return self._wanted if self._wanted_index == self.index else ExpectedWords()

    # -- taking tokens

    def take(self) -> Token:
        token = self.token
        if token.kind is TokenKind.BAD:
            raise self.unexpected()
        self.index = min(self.index + 1, len(self.piece.tokens) - 1)
        return token

    def accept(self, word: str, *more: str) -> bool:
        """Take a word if it is next; then the words that belong to it must follow."""
        self._want(word)
        if not self.token.is_word(word):
            return False
        self.take()
        for each in more:
            self.expect(each)
        return True

    def expect(self, *words: str) -> None:
        for word in words:
            if not self.accept(word):
                raise self.unexpected(word)

    def choose(self, *words: str) -> str:
        """Take one of several words."""
        for word in words:
            if self.accept(word):
                return word
        raise self.unexpected(*words)

    def accept_symbol(self, symbol: str) -> bool:
        if not self.token.is_symbol(symbol):
            return False
        self.take()
        return True

    def expect_symbol(self, symbol: str) -> None:
        if not self.accept_symbol(symbol):
            raise self.unexpected(_SYMBOLS[symbol], hint=f"write {symbol} here")

    def expect_end(self) -> None:
        if not self.at_end:
            raise self.unexpected("end of statement")

    def name(self, what: str = "a name", *kinds: ObjectKind) -> Name:
        """A name: unquoted ones fold to lower case, quoted ones stay (I3)."""
        self._want(kinds=kinds)
        token = self.token
        if token.kind is TokenKind.WORD and token.value.upper() not in RESERVED:
            folded = token.value.lower()
        elif token.kind is TokenKind.QUOTED:
            folded = token.value
        else:
            hint = ""
            if token.kind is TokenKind.WORD:
                word = token.value.lower()
                hint = f'write {what}; if it is {word}, write "{word}" in double quotes'
            raise self.unexpected(what, hint=hint)
        if not 0 < len(folded) <= NAME_LENGTH_MAX or "\0" in folded:
            raise SqlError(f"A name has 1 to {NAME_LENGTH_MAX} characters", token.span,
                           hint="choose another name")
        self.take()
        return Name(folded, token.span)

    def names(self, what: str) -> tuple[Name, ...]:
        """Names in parentheses, at least one."""
        self.expect_symbol("(")
        names = [self.name(what)]
        while self.accept_symbol(","):
            names.append(self.name(what))
        self.expect_symbol(")")
        return tuple(names)

    def string(self, what: str) -> str:
        """A string in single quotes; `what` names it in an error."""
        if self.token.kind is not TokenKind.STRING:
            raise self.unexpected(what, hint=f"write {what} in single quotes")
        return self.take().value

    def integer(self, what: str, *, maximum: int) -> int:
        token = self.token
        if token.kind is not TokenKind.NUMBER or not token.value.isdigit():
            raise self.unexpected(what)
        if int(token.value) > maximum:
            raise SqlError(f"{token.value} is too much: {what} is at most {maximum}", token.span,
                           hint=f"write a number up to {maximum}")
        return int(self.take().value)

    # -- options

    def options(self) -> tuple[Option, ...]:
        """`( name [=] value, … )`."""
        self.expect_symbol("(")
        options = [self._option()]
        while self.accept_symbol(","):
            options.append(self._option())
        self.expect_symbol(")")
        return tuple(options)

    def _option(self) -> Option:
        start = self.token.span
        words: list[Token] = []
        while self.token.kind in (TokenKind.WORD, TokenKind.QUOTED):
            words.append(self.take())
        if not words:
            raise self.unexpected("an option")
        if self.accept_symbol("=") or self._sees_value():
            value_start = self.token.span
            value = self.value()
        elif len(words) > 1:  # SECURITY PROTOCOL SASL_SSL: the last word is the value
            last = words.pop()
            value_start, value = last.span, _word_value(last)
        else:
            value_start, value = words[0].span, True
        name = option_name(" ".join(token.value for token in words))
        if is_secret(name):
            value = Secret(str(value))
        return Option(name, value, start.to(words[-1].span), self.span_from(value_start))

    def _sees_value(self) -> bool:
        token = self.token
        return (token.kind in (TokenKind.STRING, TokenKind.NUMBER, TokenKind.BAD)
                or (token.kind is TokenKind.SYMBOL and token.value in "([-+"))

    def value(self, depth: int = 0) -> Value:
        """A string, a number, a word (which is a string, TRUE or FALSE), or a list of values."""
        token = self.token
        if token.kind is TokenKind.STRING:
            return self.take().value
        if token.kind is TokenKind.WORD:
            return _word_value(self.take())
        for opening, closing in ("()", "[]"):
            if depth == 0 and self.accept_symbol(opening):
                return self._values(closing)
        sign = -1 if self.accept_symbol("-") else 1
        if sign == 1:
            self.accept_symbol("+")
        if self.token.kind is not TokenKind.NUMBER:
            raise self.unexpected("a value")
        return sign * self._number()

    def _values(self, closing: str) -> tuple[Value, ...]:
        values: list[Value] = []
        while not self.accept_symbol(closing):
            if values:
                self.expect_symbol(",")
            values.append(self.value(depth=1))
            if len(values) > LIST_LENGTH_MAX:
                raise SqlError(f"A list has at most {LIST_LENGTH_MAX} values", self.token.span)
        return tuple(values)

    def _number(self) -> int | float:
        token = self.take()
        number = int(token.value) if token.value.isdigit() else float(token.value)
        if not math.isfinite(number):
            raise SqlError("This number is too large", token.span, hint="write a smaller number")
        return number

    # -- errors

    def unexpected(self, *expected: str, hint: str = "") -> SqlError:
        """The error that something else was expected here."""
        token = self.token
        if token.kind is TokenKind.BAD:
            return SqlError(token.value, token.span, hint=_BAD_HINTS.get(token.value, ""))
        message = f"Expected {one_of(expected)}, found {self._found()}"
        return SqlError(message, token.span, hint=self._hint(expected, hint))

    def _found(self) -> str:
        token = self.token
        if token.span in secret_spans(self.text):
            return "a value"
        match token.kind:
            case TokenKind.END:
                return "end of statement"
            case TokenKind.WORD:
                word = token.value.upper()
                name = f'identifier "{in_one_line(token.value)}"'
                return word if word in self.known | RESERVED else name
            case TokenKind.QUOTED:
                return f'identifier "{in_one_line(token.value)}"'
            case TokenKind.STRING:
                return "a string"  # never its text: it may be a password
            case TokenKind.NUMBER:
                return f"number {token.value}"
            case _:
                return _SYMBOLS.get(token.value, f'"{in_one_line(token.value)}"')

    def _hint(self, expected: tuple[str, ...], hint: str) -> str:
        keywords = (word for word in expected if word.isupper())
        words = list(dict.fromkeys([*keywords, *self.wanted.words]))
        if self.token.kind is TokenKind.WORD and (near := nearest(self.token.value, words)):
            return f"did you mean {near}?"
        if hint:
            return hint
        if expected == ("end of statement",):
            follow = f"; here may follow {one_of(words)}" if words else ""
            return f"end the statement with a semicolon{follow}"
        named = all(word in words for word in expected)
        return f"write {one_of(words if named else expected)} here"

    def _want(self, word: str | None = None, *, kinds: tuple[ObjectKind, ...] = ()) -> None:
        if self._wanted_index != self.index:
            self._wanted, self._wanted_index = ExpectedWords(), self.index
        self._wanted.names.update(kinds)
        if word is not None:
            self._wanted.words[word] = None
            self.known.add(word)


def _word_value(token: Token) -> Value:
    if token.kind is TokenKind.WORD and token.value.upper() in ("TRUE", "FALSE"):
        return token.value.upper() == "TRUE"
    return token.value


_BAD_HINTS = {
    "This string has no end": "close it with a single quote; a quote inside is written twice",
    "This quoted name has no end": "close it with the quote that it began with",
    "This comment has no end": "close it with */",
    "This number is too long": "write fewer digits",
}
