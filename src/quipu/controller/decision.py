"""What a decision is: records to make durable and apply, and the answers to give after that."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from quipu.controller.records import Record
from quipu.controller.state import ClusterState
from quipu.model.ids import Epoch

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Decision(Generic[Answer]):
    """The records of one decision are written together: all of them take effect, or none."""

    records: list[Record]
    answers: list[Answer]  # one per thing asked for, in the order of asking


class Numbers:
    """The numbers that one decision gives: each once, each higher than all before (S6)."""

    def __init__(self, state: ClusterState) -> None:
        self._next_epoch = state.next_epoch
        self._next_version = state.next_version

    def epoch(self) -> Epoch:
        epoch, self._next_epoch = self._next_epoch, Epoch(self._next_epoch + 1)
        return epoch

    def version(self) -> int:
        version, self._next_version = self._next_version, self._next_version + 1
        return version
