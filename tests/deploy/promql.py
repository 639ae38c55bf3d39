"""As much of Prometheus as alert rules need: series, expressions, and alerts over time.

Expressions are parsed by `promql-parser`, which is Prometheus' grammar, and evaluated here as its
documentation has it.  What is not here is refused, never taken for something else.
"""

import math
import operator
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import promql_parser as promql

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
Value = float | Vector

NAME: Final = "__name__"
LOOKBACK_SECONDS: Final = 300.0  # a sample that is older is not seen
_ARITHMETIC: Final[Mapping[str, Callable[[float, float], float]]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul,
    "/": lambda left, right: left / right if right else math.copysign(math.inf, left)}
_COMPARISONS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, ">": operator.gt,
    "<=": operator.le, ">=": operator.ge}
_AGGREGATIONS: Final[Mapping[str, Callable[[list[float]], float]]] = {
    "min": min, "max": max, "sum": sum, "count": len}


@dataclass
class Database:
    """Samples of series, each in the order of time."""

    series: dict[Labels, deque[tuple[float, float]]] = field(default_factory=dict)

    def add(self, at: float, scrape: Mapping[str, Mapping[Labels, float]], **target: str) -> None:
        """Store a scrape of one target at a time, in seconds since 1970."""
        for name, samples in scrape.items():
            for labels, value in samples.items():
                key = labels | {(NAME, name), *target.items()}
                self.series.setdefault(key, deque()).append((at, value))

    def select(self, selector: Any, since: float, until: float) -> Iterator[
            tuple[Labels, list[tuple[float, float]]]]:
        """The samples in (since, until] of the series that match."""
        if selector.offset is not None or selector.at is not None:
            raise NotImplementedError("offset and @")
        wanted = {(each.name, each.value) for each in selector.matchers.matchers
                  if _is_equal(each.op)}
        if selector.name is not None:
            wanted.add((NAME, selector.name))
        for labels, samples in self.series.items():
            if wanted <= labels:
                found = [each for each in samples if since < each[0] <= until]
                if found:
                    yield labels, found


def _is_equal(op: Any) -> bool:
    if op != promql.MatchOp.Equal:
        raise NotImplementedError(str(op))
    return True


def evaluate(database: Database, text: str, at: float) -> Value:
    """The value of an expression at a time."""
    return _value(database, promql.parse(text), at)


def _value(database: Database, expression: Any, at: float) -> Value:
    match expression:
        case promql.NumberLiteral():
            return float(expression.val)
        case promql.ParenExpr():
            return _value(database, expression.expr, at)
        case promql.VectorSelector():
            found = database.select(expression, at - LOOKBACK_SECONDS, at)
            return {labels: samples[-1][1] for labels, samples in found}
        case promql.Call():
            return _call(database, expression, at)
        case promql.AggregateExpr():
            return _aggregate(database, expression, at)
        case promql.BinaryExpr():
            left = _value(database, expression.lhs, at)
            right = _value(database, expression.rhs, at)
            return _binary(str(expression.op), left, right, expression.modifier)
        case _:
            raise NotImplementedError(type(expression).__name__)


def _call(database: Database, call: Any, at: float) -> Value:
    match call.func.name:
        case "time":
            return at
        case "deriv":
            (matrix,) = call.args
            seconds = matrix.range.total_seconds()
            found = database.select(matrix.vector_selector, at - seconds, at)
            return {_nameless(labels): _slope(samples) for labels, samples in found
                    if len(samples) >= 2}
        case other:
            raise NotImplementedError(other)


def _slope(samples: list[tuple[float, float]]) -> float:
    """The slope of the line that is nearest to the samples, per second."""
    middle = sum(at for at, _ in samples) / len(samples)
    mean = sum(value for _, value in samples) / len(samples)
    spread = sum((at - middle) ** 2 for at, _ in samples)
    return sum((at - middle) * (value - mean) for at, value in samples) / spread


def _aggregate(database: Database, expression: Any, at: float) -> Vector:
    modifier = expression.modifier
    if modifier is None or modifier.type != promql.AggModifierType.By:
        raise NotImplementedError("an aggregation without `by`")
    vector = _value(database, expression.expr, at)
    assert isinstance(vector, dict)
    groups: dict[Labels, list[float]] = {}
    for labels, value in vector.items():
        group = frozenset(each for each in labels if each[0] in modifier.labels)
        groups.setdefault(group, []).append(value)
    reduce = _AGGREGATIONS[str(expression.op)]
    return {labels: float(reduce(values)) for labels, values in groups.items()}


def _binary(op: str, left: Value, right: Value, modifier: Any) -> Value:
    if modifier is not None and modifier.return_bool:
        raise NotImplementedError("bool")
    if op == "and":
        assert isinstance(left, dict)
        assert isinstance(right, dict)
        matched = {_matched(labels, modifier) for labels in right}
        return {labels: value for labels, value in left.items()
                if _matched(labels, modifier) in matched}
    if isinstance(left, float) and isinstance(right, float):
        return _ARITHMETIC[op](left, right)
    if isinstance(right, float):
        assert isinstance(left, dict)
        return _each(op, ((labels, value, right) for labels, value in left.items()))
    if isinstance(left, float):
        return _each(op, ((labels, left, value) for labels, value in right.items()),
                     kept_right=True)
    return _each(op, _pairs(left, right, modifier))


def _pairs(left: Vector, right: Vector, modifier: Any) -> Iterator[tuple[Labels, float, float]]:
    """Samples of both sides that match; several on the left only with `group_left`."""
    many = modifier is not None and modifier.card == promql.VectorMatchCardinality.ManyToOne
    if not many and modifier is not None and (
            modifier.card != promql.VectorMatchCardinality.OneToOne):
        raise NotImplementedError(str(modifier.card))
    ones: dict[Labels, float] = {}
    for labels, value in right.items():
        key = _matched(labels, modifier)
        assert key not in ones, f"several series match on the right side: {labels}"
        ones[key] = value
    seen: set[Labels] = set()
    for labels, value in left.items():
        key = _matched(labels, modifier)
        if key in ones:
            assert many or key not in seen, f"several series match on the left side: {labels}"
            seen.add(key)
            yield labels, value, ones[key]


def _each(
    op: str, pairs: Iterable[tuple[Labels, float, float]], *, kept_right: bool = False
) -> Vector:
    """A comparison keeps the samples for which it holds; arithmetic drops their names."""
    if op in _COMPARISONS:
        return {labels: right if kept_right else left for labels, left, right in pairs
                if _COMPARISONS[op](left, right)}
    return {_nameless(labels): _ARITHMETIC[op](left, right) for labels, left, right in pairs}


def _matched(labels: Labels, modifier: Any) -> Labels:
    """The labels that decide which samples belong together."""
    matching = None if modifier is None else modifier.matching
    if matching is None:
        return _nameless(labels)
    is_on = matching.type == promql.LabelModifierType.Include
    return frozenset(each for each in _nameless(labels)
                     if (each[0] in matching.labels) == is_on)


def _nameless(labels: Labels) -> Labels:
    return frozenset(each for each in labels if each[0] != NAME)


def names_in(text: str) -> set[str]:
    """The metrics that an expression reads."""
    found: set[str] = set()
    left = [promql.parse(text)]
    while left:
        expression = left.pop()
        match expression:
            case promql.VectorSelector():
                found.add(expression.name)
            case promql.MatrixSelector():
                found.add(expression.vector_selector.name)
            case promql.BinaryExpr():
                left += [expression.lhs, expression.rhs]
            case promql.ParenExpr() | promql.AggregateExpr():
                left.append(expression.expr)
            case promql.Call():
                left += expression.args
    return found


class Alert:
    """One rule, evaluated again and again."""

    def __init__(self, rule: Mapping[str, Any]) -> None:
        self.name: str = rule["alert"]
        self.expression: str = rule["expr"]
        self.for_seconds = _seconds(rule["for"]) if "for" in rule else 0.0
        self._since: dict[Labels, float] = {}

    def firing(self, database: Database, at: float) -> list[dict[str, str]]:
        """The labels of the alerts that fire now; call it in the order of time."""
        found = evaluate(database, self.expression, at)
        assert isinstance(found, dict), f"{self.name} is not about series"
        now = {_nameless(labels) for labels in found}
        self._since = {labels: self._since.get(labels, at) for labels in now}
        return [dict(labels) for labels, since in self._since.items()
                if at - since >= self.for_seconds]


def _seconds(text: str) -> float:
    duration: timedelta = promql.parse_duration(text)
    return duration.total_seconds()
