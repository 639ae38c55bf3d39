"""What a decision is: records to make durable and apply, and the results to return after that."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from quipu.controller.records import Record
from quipu.controller.state import FIRST_EPOCH, FIRST_VERSION, ClusterState
from quipu.model.ids import Epoch

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Decision(Generic[Result]):
    """The records of one decision are written together: all of them take effect, or none."""

    records: list[Record]
    results: list[Result]  # one per part of the request, in the request's order


class Numbers:
    """The epochs and versions that one decision gives: each once, and increasing."""

    def __init__(self, state: ClusterState) -> None:
        self._next_epoch = state.next_epoch
        self._next_version = state.next_version

    def epoch(self) -> Epoch:
        """The next epoch (controller.S6)."""
        epoch, self._next_epoch = self._next_epoch, Epoch(self._next_epoch + 1)
        assert epoch >= FIRST_EPOCH, epoch
        return epoch

    def version(self) -> int:
        """The next version (controller.S6)."""
        version, self._next_version = self._next_version, self._next_version + 1
        assert version >= FIRST_VERSION, version
        return version
