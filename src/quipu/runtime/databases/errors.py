"""The errors that a user of a database gives: what counts is whether a change was carried out."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from quipu.model.errors import QuipuError

MakeError = Callable[[str], QuipuError]


class DatabaseErrors(NamedTuple):
    """Classes of errors, each made with a sentence, and what two of the sentences say."""

    unavailable: MakeError  # nothing was changed: try again later
    unknown: MakeError  # a change was carried out, or was not
    unusable: MakeError  # what is stored is damaged, or not what is expected
    closed: MakeError
    closed_text: str
    repair_text: str  # what to do about what is unusable
    by_state: Mapping[str, MakeError] = MappingProxyType({})  # SQLSTATEs with an error of their own
