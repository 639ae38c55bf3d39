"""Pass: renames columns, and checks that names are different and not reserved (I5).

A rename list renames the first columns, in the order in which they are shown.  Names that differ
only in case count as equal, as in Spark.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from quipu.pipeline.plan.draft import Draft
from quipu.pipeline.plan.include import ITEM_COLUMNS
from quipu.pipeline.source import MetadataKind
from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.printer import item_text, quote_name
from quipu.pipeline.sql.statements import Include
from quipu.pipeline.sql.text import TextSpan

RESERVED_PREFIX = "__quipu"


def rename_columns(draft: Draft) -> Draft:
    """Apply the rename list."""
    written = draft.statement.columns
    if not written or written[0].type is not None:
        return draft
    shown = _names(draft)
    if len(written) > len(shown):
        name = draft.statement.name.text
        raise SqlError(f"source {name} definition names {len(written)} columns, but source {name} "
                       f"has {len(shown)} columns", written[len(shown)].name.span,
                       hint=f"they are {', '.join(shown)}")
    names = iter([*(item.name.text for item in written), *shown[len(written):]])
    key_columns = tuple(column._replace(name=next(names)) for column in draft.key_columns)
    error_column = draft.error_column and draft.error_column._replace(name=next(names))
    value_columns = tuple(column._replace(name=next(names)) for column in draft.value_columns)
    items = tuple(replace(item, column=item.column._replace(name=next(names)))
                  for item in draft.items)
    return replace(draft, key_columns=key_columns, error_column=error_column,
                   value_columns=value_columns, items=items)


def check_names(draft: Draft) -> Draft:
    """Raise SqlError for two columns of one name, and for a reserved name."""
    seen: dict[str, _Origin] = {}
    for origin in _origins(draft):
        if origin.name.lower().startswith(RESERVED_PREFIX):
            raise SqlError(f'Column names that begin with {RESERVED_PREFIX} are reserved: '
                           f'"{origin.name}"', origin.span, hint=_hint(origin, origin.name))
        earlier = seen.setdefault(origin.name.lower(), origin)
        if earlier is origin:
            continue
        at_fault = origin if origin.rank >= earlier.rank else earlier
        message = f'column "{origin.name}" specified more than once'
        if earlier.name != origin.name:
            message = (f'columns "{earlier.name}" and "{origin.name}" differ only in case, which '
                       "Spark does not see")
        raise SqlError(message, at_fault.span, hint=_hint(at_fault, origin.name))
    return draft


class _Origin(NamedTuple):
    """A column and its clause; the error for two equal names is at the one of higher rank."""

    name: str
    span: TextSpan
    rank: int
    item: Include | None = None
    asked: bool = True  # False for a key that UPSERT shows without INCLUDE KEY


_VALUE, _DEFINED, _ERROR, _KEY, _ITEM, _RENAMED = range(6)


def _origins(draft: Draft) -> Iterator[_Origin]:
    """The columns in order, with their clauses."""
    statement = draft.statement
    origins = [*_key_origins(draft)]
    if draft.error_column is not None:
        at = draft.options.get("errors")
        span = at.span if at is not None else draft.envelope.span
        origins.append(_Origin(draft.error_column.name, span, _ERROR))
    value_span = statement.value_format.span if statement.value_format else statement.span
    origins += [_Origin(column.name, value_span, _VALUE) for column in draft.value_columns]
    written = [item for item in statement.include if item.kind is not None]
    origins += [_Origin(item.column.name, include.span, _ITEM, include)
                for item, include in zip(draft.items, written, strict=True)]
    first, rank = 0, _RENAMED
    if statement.columns and statement.columns[0].type is not None:
        first, rank = len(draft.key_columns) + (draft.error_column is not None), _DEFINED
    for index, item in enumerate(statement.columns, first):
        origins[index] = _Origin(origins[index].name, item.name.span, rank)
    yield from origins


def _key_origins(draft: Draft) -> Iterator[_Origin]:
    statement = draft.statement
    include = next((item for item in statement.include if item.kind is None), None)
    at = include or statement.key_format or statement.value_format or statement
    for column in draft.key_columns:
        yield _Origin(column.name, at.span, _KEY,
                      include or Include(None, span=at.span), include is not None)


def _hint(origin: _Origin, name: str) -> str:
    if origin.rank in (_DEFINED, _RENAMED):
        return "give it another name"
    if origin.rank == _ERROR:
        return "name it: VALUE DECODING ERRORS = INLINE AS …, or ERROR COLUMN = '…'"
    if origin.item is None:
        return "name the columns after the source's name: (a, b, …)"
    bare = item_text(replace(origin.item, alias=None, type=None))
    if origin.item.kind is None:
        other = f"message_{name.lstrip('_')}"
        bare = bare if origin.asked else f"INCLUDE {bare}"
    elif origin.item.kind is MetadataKind.HEADER:
        other = f"header_{name.lstrip('_')}"
    else:
        other = f"kafka_{ITEM_COLUMNS[origin.item.kind].name}"
    return f"write {bare} AS {quote_name(other)}"


def _names(draft: Draft) -> list[str]:
    error = [draft.error_column.name] if draft.error_column is not None else []
    return [*(column.name for column in draft.key_columns), *error,
            *(column.name for column in draft.value_columns),
            *(item.column.name for item in draft.items)]
