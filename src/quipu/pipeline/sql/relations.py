"""Finds the relations that a query reads.

The query is Spark's SELECT.  A recursive-descent parser reads only the parts that decide which
names are relations: WITH and the scope of its names, FROM and JOIN, set operations, TABLE, pipes
(`|>`), and subqueries.  Expressions are skipped, except for the subqueries in them.

    pipeline.N1  A name that WITH defines hides the relation of that name in the definitions after
                 it and in the query that WITH begins, at any depth, and nowhere else.

It returns a result for any text: Spark itself reports the errors of a query.
docs/adr/0030 says why no library is used; tests compare it with Spark's own parser.
"""

import re
from collections.abc import Sequence
from typing import Final

from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.lexer import Token, TokenKind, query_tokens

DEPTH_MAX: Final = 100  # of queries within queries

_Scope = frozenset[str]  # names that WITH defines, in lower case

_SET_OPERATIONS: Final = frozenset({"UNION", "INTERSECT", "EXCEPT", "MINUS", "SETMINUS"})
_CLAUSES_AFTER_FROM: Final = _SET_OPERATIONS | {
    "SELECT", "WHERE", "HAVING", "LIMIT", "OFFSET", "QUALIFY"}
_CLAUSES_WITH_BY: Final = frozenset({"GROUP", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE"})
_JOIN_WORDS: Final = frozenset({
    "INNER", "CROSS", "LEFT", "RIGHT", "FULL", "OUTER", "SEMI", "ANTI", "NATURAL", "LATERAL"})
_ONE_NAME: Final = re.compile(r"\s*(?:(\w+)|`((?:[^`]|``)+)`)\s*")


def relations(query: str) -> tuple[str, ...]:
    """The names of the relations that a query reads, as written, each once, in order.

    >>> relations("WITH c AS (SELECT * FROM a) SELECT * FROM c JOIN b ON c.x = b.x, d")
    ('a', 'b', 'd')
    """
    reader = _RelationReader(query, query_tokens(query))
    reader.query(frozenset())
    return tuple(reader.found)


class _RelationReader:
    """A position in the tokens of a query, and the relations found before it."""

    def __init__(self, text: str, tokens: Sequence[Token]) -> None:
        assert tokens[-1].kind is TokenKind.END
        self.found: dict[str, None] = {}
        self._text = text
        self._tokens = tokens
        self._index = 0
        self._depth = 0

    def query(self, scope: _Scope) -> None:
        """Read a query up to the parenthesis that closes it, or to the end of the text."""
        if self._is_word("WITH"):
            scope = self._definitions(scope)
        self._query_term(scope)
        self._rest_of_query(scope)

    # -- the parts of a query

    def _definitions(self, scope: _Scope) -> _Scope:
        """Read `WITH [RECURSIVE] name [(columns)] [AS] (query), …`; the scope with those names."""
        self._index += 1
        recursive = self._skip_words("RECURSIVE")
        while self._is_name():
            name = self._tokens[self._index].value.lower()
            self._index += 1
            if self._is_symbol("(") and not self._opens_query(self._index + 1):
                self._parenthesis(scope)  # the names of columns
            while not (self._is_symbol("(") or self._at_end()):
                self._index += 1  # MAX RECURSION LEVEL n AS
            # pipeline.N1: a definition sees those before it, and itself only if RECURSIVE
            self._nested_query(scope | {name} if recursive else scope)
            scope |= {name}
            if not self._is_symbol(","):
                break
            self._index += 1
        return scope

    def _query_term(self, scope: _Scope) -> None:
        """Read the start of what set operations combine: TABLE, FROM, or a query in parentheses."""
        if self._is_word("TABLE") and self._is_name(self._index + 1):
            self._index += 1
            self._relation_name(scope)
        elif self._is_word("FROM"):
            self._index += 1
            self._from_clause(scope)
        elif self._is_symbol("("):
            self._parenthesis(scope)

    def _rest_of_query(self, scope: _Scope) -> None:
        while not self._at_end():
            if self._is_word("FROM") and not self._tokens[self._index - 1].is_word("DISTINCT"):
                self._index += 1
                self._from_clause(scope)
            elif self._skip_words(*_SET_OPERATIONS):
                self._skip_words("ALL", "DISTINCT")
                self._query_term(scope)
            elif self._is_pipe():
                self._index += 2
                self._skip_words(*_JOIN_WORDS)
                if self._skip_words("JOIN"):
                    self._relation(scope)
            else:
                self._pass_over(scope)

    def _from_clause(self, scope: _Scope) -> None:
        """Read relations, their joins and what belongs to them, up to the next clause."""
        self._relation(scope)
        commas_separate_relations = True
        while not (self._at_end() or self._is_next_clause()):
            if self._is_symbol(",") and commas_separate_relations:
                self._index += 1
                self._relation(scope)
            elif self._skip_words("JOIN"):
                self._relation(scope)
            elif self._is_word("LATERAL") and self._is_word("VIEW", self._index + 1):
                self._index += 2
                commas_separate_relations = False  # from here on, they separate its columns
            else:
                self._pass_over(scope)

    def _relation(self, scope: _Scope) -> None:
        self._skip_words("LATERAL")
        if self._is_symbol("("):
            if self._opens_subquery(self._index + 1):
                self._nested_query(scope)
            else:
                self._nested_from(scope)
        elif self._is_word("VALUES") and not self._at_end(self._index + 1) and not any(
                self._is_symbol(symbol, self._index + 1) for symbol in ",."):
            self._rows(scope)
        elif self._is_word("IDENTIFIER") and self._is_symbol("(", self._index + 1):
            self._identifier_clause(scope)
        elif self._is_word("STREAM") and self._is_symbol("(", self._index + 1):
            self._index += 2
            self._relation_name(scope)
            self._index += self._is_symbol(")")
        else:
            if self._is_word("STREAM") and self._is_name(self._index + 1):
                self._index += 1
            self._relation_name(scope)

    def _relation_name(self, scope: _Scope) -> None:
        """Read a name; one of several parts is of another catalog, one with a `(` a function."""
        name = self._name()
        if name is None:
            return
        is_one_part = not self._is_symbol(".")
        while self._is_symbol("."):
            self._index += 1
            self._name()
        if self._is_symbol("("):
            self._parenthesis(scope, holds_tables=True)
        elif is_one_part:
            self._found(name, scope)

    def _identifier_clause(self, scope: _Scope) -> None:
        """Read `IDENTIFIER('name')`; what is computed only when the query runs is not known."""
        start = self._index + 2
        self._index += 1
        self._parenthesis(scope)
        if self._index == start + 2 and self._is_text(start) and (
                one := _ONE_NAME.fullmatch(self._tokens[start].value)):
            self._found(one[1] or one[2].replace("``", "`"), scope)

    def _rows(self, scope: _Scope) -> None:
        """Read `VALUES (…), (…)` as a relation: the commas between rows separate no relations."""
        self._index += 1
        while True:
            if self._is_symbol("("):
                self._parenthesis(scope)
            else:  # a row of one column; its alias, if it has one, is behind AS
                while not (self._at_end() or self._is_next_clause() or self._is_symbol(",")
                           or self._is_word("AS") or self._is_word("JOIN")):
                    self._pass_over(scope)
            if not self._is_symbol(","):
                return
            self._index += 1

    # -- parentheses

    def _nested_query(self, scope: _Scope) -> None:
        """Read a query in parentheses; the position is at the opening one."""
        self._descend()
        self.query(scope)
        self._ascend()

    def _nested_from(self, scope: _Scope) -> None:
        """Read relations in parentheses, and the set operations that may follow the first."""
        self._descend()
        self._from_clause(scope)
        self._rest_of_query(scope)
        self._ascend()

    def _descend(self) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise SqlError(f"Queries are nested more than {DEPTH_MAX} deep in this one",
                           self._tokens[self._index].span,
                           hint="write inner queries as views, or in a WITH")
        self._index += self._is_symbol("(")

    def _ascend(self) -> None:
        self._depth -= 1
        assert self._depth >= 0
        self._index += self._is_symbol(")")

    def _parenthesis(self, scope: _Scope, *, holds_tables: bool = False) -> None:
        """Read a parenthesis to its end: a subquery, or expressions that may hold subqueries.

        In arguments of a function that returns a table, `TABLE(name)` is a relation.
        """
        assert self._is_symbol("(")
        depth = 0
        while self._tokens[self._index].kind is not TokenKind.END:
            if self._is_symbol("(") and self._opens_query(self._index + 1):
                self._nested_query(scope)
            elif self._is_symbol("("):
                while self._is_symbol("("):  # all at once, or each would look for what follows all
                    self._index += 1
                    depth += 1
            elif self._is_symbol(")"):
                self._index += 1
                depth -= 1
            elif holds_tables and self._is_word("TABLE") and self._is_symbol("(", self._index + 1):
                self._index += 1
                if not self._opens_query(self._index + 1):
                    self._index += 1
                    depth += 1
                    self._relation_name(scope)
            else:
                self._index += 1
            if depth == 0:
                return

    def _opens_query(self, index: int) -> bool:
        """Whether what is behind an opening parenthesis, or behind several, begins a query."""
        is_argument_of_trim = index > 1 and self._tokens[index - 2].is_word("TRIM")
        while self._is_symbol("(", index):
            index += 1
        if self._is_word("FROM", index) and is_argument_of_trim:  # trim(FROM x)
            return False
        return self._opens_subquery(index) or self._is_word("VALUES", index)

    def _opens_subquery(self, index: int) -> bool:
        """Whether a parenthesis in FROM holds a query, not relations: `(a JOIN b)`, `((a) …)`.

        VALUES is both; as the first of several relations it may be followed by joins.
        """
        if self._is_word("TABLE", index):
            return self._is_name(index + 1)
        return any(self._is_word(word, index) for word in ("SELECT", "WITH", "FROM"))

    # -- tokens

    def _found(self, name: str, scope: _Scope) -> None:
        if name.lower() not in scope:  # pipeline.N1
            self.found[name] = None

    def _name(self) -> str | None:
        """Read one part of a name; Spark's may begin with digits, which the lexer reads apart."""
        start = self._index
        token = self._tokens[start]
        if self._is_name():
            self._index += 1
            return token.value
        if token.kind is not TokenKind.NUMBER:
            return None
        self._index += 1
        while (self._tokens[self._index].kind in (TokenKind.NUMBER, TokenKind.WORD)
               and self._tokens[self._index].span.start == self._tokens[self._index - 1].span.end):
            self._index += 1
        return self._text[token.span.start:self._tokens[self._index - 1].span.end]

    def _pass_over(self, scope: _Scope) -> None:
        """Pass over one token, a parenthesis, or a dot with the name behind it."""
        if self._is_symbol("("):
            self._parenthesis(scope)
        elif self._is_symbol(".") and self._tokens[self._index + 1].kind is TokenKind.WORD:
            self._index += 2
        else:
            self._index += 1

    def _skip_words(self, *words: str) -> bool:
        """Pass over these words, in any order; whether there was one."""
        start = self._index
        while any(self._is_word(word) for word in words):
            self._index += 1
        return self._index > start

    def _at_end(self, index: int | None = None) -> bool:
        """Whether the query that is being read ends here."""
        index = self._index if index is None else index
        return self._is_symbol(")", index) or self._tokens[index].kind is TokenKind.END

    def _is_next_clause(self) -> bool:
        """Whether a clause begins that ends FROM, or a pipe."""
        token = self._tokens[self._index]
        word = token.value.upper() if token.kind is TokenKind.WORD else ""
        if word in _CLAUSES_WITH_BY:
            return self._is_word("BY", self._index + 1)
        if word == "WINDOW":
            return self._is_name(self._index + 1) and self._is_word("AS", self._index + 2)
        return word in _CLAUSES_AFTER_FROM or self._is_pipe()

    def _is_pipe(self) -> bool:
        return self._is_symbol("|") and self._is_symbol(">", self._index + 1)

    def _is_text(self, index: int) -> bool:
        """Whether a token is a string; in Spark's language double quotes hold strings, too."""
        token = self._tokens[index]
        return token.kind is TokenKind.STRING or (
            token.kind is TokenKind.QUOTED and self._text[token.span.start] == '"')

    def _is_name(self, index: int | None = None) -> bool:
        index = self._index if index is None else index
        return index < len(self._tokens) and not self._is_text(index) and (
            self._tokens[index].kind in (TokenKind.WORD, TokenKind.QUOTED))

    def _is_word(self, word: str, index: int | None = None) -> bool:
        index = self._index if index is None else index
        return index < len(self._tokens) and self._tokens[index].is_word(word)

    def _is_symbol(self, symbol: str, index: int | None = None) -> bool:
        index = self._index if index is None else index
        return index < len(self._tokens) and self._tokens[index].is_symbol(symbol)
