"""Which relations a query reads, and what depends on what.

The query is Spark's; here it is only looked at, token by token: names after FROM and JOIN and
after commas between them, at any depth, are relations, unless a WITH in front has defined them.
Spark itself has the last word when the view is made.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.lexer import Kind, Token, split
from quipu.pipeline.sql.statements import Name

Uses = Mapping[str, Sequence[str]]  # by object: the objects that it needs

# FROM within these parentheses is part of a function call.
_FUNCTIONS_WITH_FROM = {"EXTRACT", "TRIM", "SUBSTRING", "SUBSTR", "OVERLAY", "POSITION"}
_ENDS_OF_FROM = {"WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "UNION", "INTERSECT", "EXCEPT",
                 "MINUS", "SELECT", "WINDOW", "SORT", "CLUSTER", "DISTRIBUTE", "QUALIFY", "OFFSET"}


def relations(query: str) -> tuple[str, ...]:
    """The names of the relations that a query reads, as written, each once, in order.

    >>> relations("WITH c AS (SELECT * FROM a) SELECT * FROM c JOIN b ON c.x = b.x, d")
    ('a', 'b', 'd')
    """
    pieces = split(query)
    if not pieces:
        return ()
    tokens = [token for token in pieces[0].tokens if not _is_text(token, query)]
    defined = list(_definitions(tokens))
    found: dict[str, None] = {}
    for index, name in _references(tokens):
        if not any(name.lower() == cte.lower() and end < index for cte, end in defined):
            found[name] = None
    return tuple(found)


def used(query: str, known: Iterable[str]) -> tuple[str, ...]:
    """Those of our objects that a query reads; Spark does not care for case."""
    by_folded = {name.lower(): name for name in known}
    found = (by_folded.get(name.lower()) for name in relations(query))
    return tuple(dict.fromkeys(name for name in found if name is not None))


def refuse_cycle(name: Name, uses: Sequence[str], graph: Uses) -> None:
    """A view that is replaced must not read itself, at any distance."""
    path = _path(list(uses), name.text, graph)
    if path is not None:
        raise SqlError(f"{name.text} would read itself: {' reads '.join([name.text, *path])}",
                       name.span, hint="give the new view another name")


def dropped(name: Name, graph: Uses, *, cascade: bool) -> tuple[str, ...]:
    """What goes if an object goes: what needs it first, itself last."""
    users = _users(name.text, graph)
    if users and not cascade:
        needed_by = ", ".join(sorted(users))
        raise SqlError(f"{name.text} is needed by {needed_by}", name.span,
                       hint=f"drop {needed_by} first, or write CASCADE")
    return (*_in_order(users, graph), name.text)


def _users(name: str, graph: Uses) -> set[str]:
    found: set[str] = set()
    open_names = [name]
    while open_names:
        current = open_names.pop()
        new = {each for each, uses in graph.items() if current in uses} - found
        found |= new
        open_names += sorted(new)
    return found


def _in_order(names: set[str], graph: Uses) -> list[str]:
    """Users before what they use; there are no cycles."""
    done: list[str] = []
    left = sorted(names)
    while left:
        free = [name for name in left
                if not any(name in graph.get(other, ()) for other in left)]
        assert free, "views read each other in a circle"
        done += free
        left = [name for name in left if name not in free]
    return done


def _path(starts: list[str], target: str, graph: Uses) -> list[str] | None:
    seen: set[str] = set()
    open_paths = [[start] for start in starts]
    while open_paths:
        path = open_paths.pop(0)
        if path[-1] == target:
            return path
        if path[-1] not in seen:
            seen.add(path[-1])
            open_paths += [[*path, each] for each in graph.get(path[-1], ())]
    return None


# -- reading a query


def _is_text(token: Token, query: str) -> bool:
    """Strings are no names; in Spark's words double quotes hold strings."""
    return token.kind is Kind.STRING or (
        token.kind is Kind.QUOTED and query[token.span.start] == '"')


def _definitions(tokens: Sequence[Token]) -> Iterator[tuple[str, int]]:
    """`name AS (`: the names that WITH defines, and the index where each definition ends."""
    for index in range(len(tokens) - 2):
        name, word, opening = tokens[index:index + 3]
        is_name = name.kind in (Kind.WORD, Kind.QUOTED)
        after = index > 0 and (tokens[index - 1].is_word("WITH")
                               or tokens[index - 1].is_symbol(",")
                               or tokens[index - 1].is_word("RECURSIVE"))
        if is_name and after and word.is_word("AS") and opening.is_symbol("("):
            yield name.value, _closing(tokens, index + 2)
        elif is_name and after and word.is_symbol("("):  # name (columns) AS (
            end = _closing(tokens, index + 1)
            if (end + 2 < len(tokens) and tokens[end + 1].is_word("AS")
                    and tokens[end + 2].is_symbol("(")):
                yield name.value, _closing(tokens, end + 2)


def _closing(tokens: Sequence[Token], opening: int) -> int:
    depth = 0
    for index in range(opening, len(tokens)):
        depth += tokens[index].is_symbol("(") - tokens[index].is_symbol(")")
        if depth == 0:
            return index
    return len(tokens)


@dataclass
class _Level:
    """Within one pair of parentheses."""

    in_from: bool = False
    expects: bool = False  # a relation comes next
    is_call: bool = False  # EXTRACT( … FROM … )


def _references(tokens: Sequence[Token]) -> Iterator[tuple[int, str]]:
    levels = [_Level()]
    for index, token in enumerate(tokens):
        level = levels[-1]
        before = tokens[index - 1] if index else None
        if token.is_symbol("("):
            is_call = before is not None and before.value.upper() in _FUNCTIONS_WITH_FROM
            levels.append(_Level(expects=level.expects, in_from=level.expects, is_call=is_call))
            level.expects = False
        elif token.is_symbol(")"):
            if len(levels) > 1:
                levels.pop()
        elif token.is_word("FROM"):
            distinct = before is not None and before.is_word("DISTINCT")
            if not (level.is_call or distinct):
                level.in_from = level.expects = True
        elif token.is_word("JOIN") or (token.is_symbol(",") and level.in_from):
            level.in_from = level.expects = True
        elif token.is_word("VIEW") and before is not None and before.is_word("LATERAL"):
            level.in_from = False  # the commas after it are between columns
        elif token.kind is Kind.WORD and token.value.upper() in _ENDS_OF_FROM:
            level.in_from = level.expects = False
        elif level.expects and token.kind in (Kind.WORD, Kind.QUOTED):
            if token.value.upper() in ("LATERAL", "TABLE", "STREAM", "ONLY"):
                continue
            level.expects = False
            following = tokens[index + 1] if index + 1 < len(tokens) else None
            if following is None or not (following.is_symbol("(") or following.is_symbol(".")):
                yield index, token.value
