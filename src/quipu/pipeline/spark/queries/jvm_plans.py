"""Access to Spark's plans and expressions, which are objects of the JVM."""

from collections.abc import Iterator
from typing import Any


def class_of(thing: Any) -> str:  # noqa: ANN401 the JVM's objects have no types here
    """The name of a Java object's class."""
    return str(thing.getClass().getSimpleName())


def items_of(sequence: Any) -> list[Any]:  # noqa: ANN401
    """The items of a Scala sequence."""
    return [sequence.apply(index) for index in range(sequence.size())]


def nodes_of(plan: Any) -> Iterator[Any]:  # noqa: ANN401
    """The nodes of an analyzed plan, with those of its subqueries."""
    yield plan
    for child in (*items_of(plan.children()), *items_of(plan.subqueries())):
        yield from nodes_of(child)
