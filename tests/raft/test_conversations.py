"""Golden conversations: UPDATE_GOLDEN=1 rewrites them; commit only a difference you can explain."""

import os
from pathlib import Path

import pytest

from tests.raft.conversations import Conversation

GOLDEN = Path(__file__).parent / "golden"


def replay(text: str) -> str:
    """Return the same commands and comments, with the results that they have now."""
    conversation = Conversation()
    out = []
    for block in text.strip().split("\n\n"):
        lines = block.split("\n")
        given = lines[: lines.index("----")] if "----" in lines else lines
        commands = [line for line in given if not line.startswith("#")]
        if not commands:
            out.append("\n".join(given))
            continue
        results = [line for command in commands for line in conversation.run(command)]
        out.append("\n".join([*given, "----", *results]))
    return "\n\n".join(out) + "\n"


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.txt")), ids=lambda path: path.stem)
def test_conversation(path: Path) -> None:
    """T6, T7: the messages between nodes, line by line."""
    text = path.read_text()
    now = replay(text)
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(now)
        return
    assert now == text


def test_there_are_conversations() -> None:
    assert len(list(GOLDEN.glob("*.txt"))) >= 8
