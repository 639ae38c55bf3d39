"""Masks passwords: in SHOW, in EXPLAIN, and in the line that an error underlines.

Parsed statements hold them as `Secret`, which prints as a mask.  In raw text, which may have
errors, `secret_spans` finds them by the words before them.  It masks too much rather than too
little: in CREATE CONNECTION every value is a secret unless the option before it is known to be
public, so the value of a misspelled PASSWORD is masked, too.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from quipu.model.nearest import nearest
from quipu.pipeline.sql.lexer import Token, TokenKind, split
from quipu.pipeline.sql.text import TextSpan

MASK = "'***'"
_SECRET_WORDS = ("password", "passwd", "pwd", "secret", "token", "passphrase", "jaas",
                 "credentials")
_SECRET_ENDS = (" key", "key pem", "basic auth user info")  # SSL KEY holds a key, KEY LOCATION not
_PUBLIC_NAMES = ("broker", "brokers", "url", "username", "user", "sasl username", "sasl mechanism",
                 "sasl mechanisms", "security protocol", "ssl certificate authority",
                 "ssl ca location", "ssl key location", "ssl certificate location",
                 "ssl certificate", "client id", "validate")
_USER_INFO = re.compile(  # up to the last @: passwords may have one, too; with a scheme, or without
    r"(?<=://)[^\s'\"<>]*@"
    r"|(?<![^\s'\"<>(\[,=])[^\s'\"<>()\[,=:]{1,200}:(?!/)[^\s'\"<>,]{0,200}@")
_PARAMETER = re.compile(  # of an address, or of a connection as key=value
    r"(?i)((?:password|passwd|pwd|secret|token|access[_.]?key|api[_.]?key|signature|\bsig|"
    r"user\.info)[\"']?\s*[=:]\s*[\"']?)(?!\*\*\*)[^\s&;,\"')}]+")


@dataclass(frozen=True)
class Secret:
    """A secret value, which prints as a mask; `value` is the text itself."""

    value: str

    def __repr__(self) -> str:
        return f"Secret({MASK})"


def option_name(text: str) -> str:
    """The form in which names of options are compared: `start_offset` becomes `start offset`."""
    return re.sub(r"[\s_.-]+", " ", text).strip().lower()


def is_secret(name: str) -> bool:
    """Is the value of an option of this name a secret?"""
    folded = option_name(name)
    if folded.endswith(_SECRET_ENDS):
        return True
    if folded in _PUBLIC_NAMES:
        return False
    return any(nearest(word, _SECRET_WORDS, cutoff=0.75) for word in folded.split())


def mask_addresses(text: str) -> str:
    """A text in which the users and passwords of addresses are masked."""
    return _PARAMETER.sub(r"\1***", _USER_INFO.sub("***@", text))


def mask_text(text: str) -> str:
    """A script with every secret masked."""
    shown, position = [], 0
    for span in secret_spans(text):
        shown += [text[position:span.start], MASK]
        position = span.end
    return "".join([*shown, text[position:]])


def secret_spans(text: str) -> list[TextSpan]:
    """The spans of the secrets of a script, in order; they do not overlap."""
    found: set[TextSpan] = set()
    for piece in split(text):
        tokens = piece.tokens[:-1]
        opening = " ".join(token.value.upper() for token in tokens[:3])
        if opening.removeprefix("EXPLAIN ").startswith("CREATE CONNECTION"):
            found.update(_values_of_connection(tokens))
        found.update(_values_after_secret_names(tokens))
        found.update(token.span for token in tokens
                     if token.kind in (TokenKind.STRING, TokenKind.BAD)
                     and _has_secret(text[token.span.start:token.span.end]))
    return sorted(found)


def _has_secret(text: str) -> bool:
    return bool(_USER_INFO.search(text) or _PARAMETER.search(text))


def _values_after_secret_names(tokens: Sequence[Token]) -> Iterator[TextSpan]:
    for index, token in enumerate(tokens):
        named = token.kind in (TokenKind.WORD, TokenKind.QUOTED)
        if not (named and (is_secret(token.value) or _names_key(tokens, index))):
            continue
        value = index + 1
        assigned = value < len(tokens) and tokens[value].is_symbol("=")
        value += assigned
        if value < len(tokens) and (
                assigned or tokens[value].kind in (TokenKind.STRING, TokenKind.BAD)):
            yield tokens[value].span


def _names_key(tokens: Sequence[Token], index: int) -> bool:
    words = " ".join(token.value for token in tokens[max(0, index - 1):index + 1])
    return option_name(words).endswith(_SECRET_ENDS)


def _values_of_connection(tokens: Sequence[Token]) -> Iterator[TextSpan]:
    opening = next((i for i, token in enumerate(tokens) if token.is_symbol("(")), len(tokens))
    item: list[Token] = []
    depth = 0
    for token in tokens[opening + 1:]:
        depth += token.is_symbol("(") - token.is_symbol(")")
        if token.is_symbol(",") and depth <= 0:
            yield from _values_of_option(item)
            item = []
        else:
            item.append(token)
    yield from _values_of_option(item)


def _values_of_option(item: Sequence[Token]) -> Iterator[TextSpan]:
    words = 0
    while words < len(item) and item[words].kind in (TokenKind.WORD, TokenKind.QUOTED):
        words += 1
    hidden = item[words:]
    if words == len(item):  # PASSWORD hunter2
        hidden = item[max(1, words - 1):]
    for count in range(words, 0, -1):
        if option_name(" ".join(token.value for token in item[:count])) in _PUBLIC_NAMES:
            hidden = item[_end_of_value(item, count):]
            break
    yield from (token.span for token in hidden if token.kind is not TokenKind.SYMBOL)


def _end_of_value(item: Sequence[Token], start: int) -> int:
    """The index after the value, or the list of values, of a name."""
    while start < len(item) and item[start].is_symbol("="):
        start += 1
    if start < len(item) and item[start].is_symbol("("):
        while start < len(item) and not item[start].is_symbol(")"):
            start += 1
    return start + 1
