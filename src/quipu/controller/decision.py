"""What a decision is: records to make durable and apply, and the answers to give after that."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from quipu.controller.records import Record

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Decision(Generic[Answer]):
    """The records of one decision are written together: all of them take effect, or none."""

    records: list[Record]
    answers: list[Answer]  # one per thing asked for, in the order of asking
