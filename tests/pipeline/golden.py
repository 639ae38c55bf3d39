"""Golden files: a question, `----`, the answer, a blank line, the next question.

UPDATE_GOLDEN=1 writes the answers anew; commit only a difference that you can explain.
"""

import os
from collections.abc import Callable
from pathlib import Path

RULE = "\n----\n"


def check_golden(path: Path, answer: Callable[[str], str]) -> None:
    """Every question of a file gets the answer that stands below it."""
    cases = [case.split(RULE) for case in path.read_text().strip("\n").split("\n\n")]
    asked = [(case[0], answer(_question(case[0]))) for case in cases]
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text("\n\n".join(RULE.join(case) for case in asked) + "\n")
        return
    for (question, got), case in zip(asked, cases, strict=True):
        assert len(case) == 2, f"{path.name}: no answer yet\n{question}"
        assert got == case[1], f"{path.name}: {question}"


def _question(text: str) -> str:
    """Without the lines that say why the question is asked."""
    return "\n".join(line for line in text.split("\n") if not line.startswith("#"))
