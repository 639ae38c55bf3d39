"""Everything that is wrong with a node's settings, at once: what `quipu config check` tells.

A node stops at the first mistake; here, each entry is looked at, and then whether the values that
are right go together.  A mistake that follows from one that was told already is left out.

Not here: reading files (the caller does), what is right (settings, settings_sources).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from quipu.model.controller_listener import with_controller_listener
from quipu.model.errors import SettingError
from quipu.model.settings import BROKER, BrokerSettings, find_known, parse
from quipu.model.settings_sources import (
    CHECKS,
    Given,
    add_entry,
    merged,
    names_of_classes,
    properties_entries,
    table_of,
)
from quipu.model.settings_types import Value


class SettingProblem(NamedTuple):
    """One thing that is wrong with settings, or has no effect."""

    message: str
    line: int | None = None  # of the file, if it was given there
    name: str | None = None  # of the setting
    is_warning: bool = False  # the node starts all the same


class CheckedSettings(NamedTuple):
    """The settings of a node, and what is wrong with them."""

    settings: BrokerSettings | None  # None: the node would not start
    given: Mapping[str, Given]
    problems: Sequence[SettingProblem]

    @property
    def errors(self) -> list[SettingProblem]:
        """What keeps the node from starting."""
        return [each for each in self.problems if not each.is_warning]


def examine(
    content: str, file: str, others: Sequence[Mapping[str, Given]] = ()
) -> CheckedSettings:
    """Check the properties file `content`, overridden by `others` as when a node starts."""
    found: dict[str, Given] = {}
    problems: list[SettingProblem] = []
    for line, entry in properties_entries(content):
        try:
            add_entry(found, entry, file, line)
        except SettingError as error:
            problems.append(SettingProblem(str(error), line))
    given = merged([found, *others])
    values = _values(given, problems)
    settings = _together(given, values, problems)
    problems += [
        SettingProblem(f"{name} has no effect: {row.ignored.rstrip('.')}", each.line, name,
                       is_warning=True)
        for name, each in given.items()
        if name in values and (row := find_known(BROKER, name)) is not None and row.ignored]
    has_errors = any(not each.is_warning for each in problems)
    return CheckedSettings(None if has_errors else settings, given, sorted(
        problems, key=lambda each: (each.line is None, each.line or 0, each.is_warning)))


def _values(given: Mapping[str, Given], problems: list[SettingProblem]) -> dict[str, Value]:
    """The typed values of those that are allowed; the others are added to `problems`."""
    values: dict[str, Value] = {}
    try:
        of_classes = names_of_classes(given)
    except SettingError as error:
        problems.append(_about(str(error), given))
        of_classes = frozenset()
    for name, (value, where, line) in given.items():
        if name in of_classes:
            continue
        try:
            values[name] = parse(BROKER, name, value, where if line is None else "")
        except SettingError as error:
            problems.append(SettingProblem(str(error), line, name))
    return values


def _together(
    given: Mapping[str, Given], values: Mapping[str, Value], problems: list[SettingProblem]
) -> BrokerSettings | None:
    """The table; contradictions are added to `problems`, unless they follow from one of them."""
    told = {each.name for each in problems}
    if any(each.name is None for each in problems):
        return None  # what such an entry would have said is not known

    def add(error: SettingError) -> None:
        if not any(name in str(error) for name in told if name is not None):
            problems.append(_about(str(error), given))

    settings = table_of(given, values)
    try:
        settings = with_controller_listener(settings)
    except SettingError as error:
        add(error)
        return settings
    for check_some in CHECKS:
        try:
            check_some(settings)
        except SettingError as error:
            add(error)
    return settings


def _about(message: str, given: Mapping[str, Given]) -> SettingProblem:
    """A problem, with the line of the first setting that its message names."""
    named = [name for name in given if name in message]
    first = min(named, key=lambda name: (message.index(name), -len(name)), default=None)
    return SettingProblem(message, None if first is None else given[first].line, first)
