"""Which objects a query reads, and which objects are dropped together.

Not here: which names in a query are relations (sql/relations.py).
"""

from collections.abc import Iterable, Mapping, Sequence

from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.relations import relations
from quipu.pipeline.sql.statements import Name

Uses = Mapping[str, Sequence[str]]  # by object: the objects that it needs


def used(query: str, known: Iterable[str]) -> tuple[str, ...]:
    """The known objects that a query reads, in its order; names are compared without case."""
    by_folded = {name.lower(): name for name in known}
    found = (by_folded.get(name.lower()) for name in relations(query))
    return tuple(dict.fromkeys(name for name in found if name is not None))


def refuse_cycle(name: Name, uses: Sequence[str], graph: Uses) -> None:
    """Raise SqlError if a view with these uses would read itself, directly or through others."""
    path = _path(list(uses), name.text, graph)
    if path is not None:
        raise SqlError(f"{name.text} would read itself: {' reads '.join([name.text, *path])}",
                       name.span, hint="give the new view another name")


def dropped(name: Name, graph: Uses, *, cascade: bool) -> tuple[str, ...]:
    """The objects that are dropped with this one: those that need it first, itself last.

    Raises SqlError if there are such objects and `cascade` is False.
    """
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
    """The names in an order in which an object comes before those that it uses."""
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
