"""What the demo prints: steps, what is typed, what commands print; and checks that end it."""

import subprocess
import sys
import urllib.request
from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from tests.harness.node import RunningNode, environment

COMMAND_SECONDS_MAX = 30

console = Console(highlight=False)


class BrokenPromise(Exception):
    """A claim of the demo is not true."""


def quipu(
    node: RunningNode,
    *words: str,
    shown: bool = True,
    offline: bool = False,
    lines_max: int = 40,
) -> str:
    """Run a command against the node, show it, and return what it printed."""
    arguments = [*words] if offline else [*words, "--bootstrap", node.bootstrap]
    done = subprocess.run(
        [sys.executable, "-m", "quipu", *arguments],
        capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX, check=False,
        env=environment(), cwd=node.directory.parent,
    )  # fmt: skip
    if shown:
        typed(f"quipu {' '.join(words)}")
        lines = (done.stdout + done.stderr).splitlines()
        show(lines[:lines_max])
        if len(lines) > lines_max:
            say(f"... and {len(lines) - lines_max} more lines")
    check(done.returncode == 0, f"quipu {' '.join(words)}: {done.stderr}")
    return done.stdout


def http(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as response:  # noqa: S310 our own node
        text: str = response.read().decode()
        return text


def typed(text: str, prompt: str = "$") -> None:
    """Print a command as a user would type it."""
    console.print(Text(f"{prompt} {text}", style="bold cyan"), soft_wrap=True)


def step(title: str, about: str) -> None:
    console.print()
    console.rule(f"[bold]{title}", align="left", style="green")
    say(about)


def say(text: str) -> None:
    console.print(Text(text, style="italic dim"))


def show(lines: Iterable[str]) -> None:
    for line in lines:
        console.print(Text(line), soft_wrap=True)  # every character, however narrow the window


def check(holds: bool, otherwise: str) -> None:  # noqa: FBT001 reads as a sentence
    if not holds:
        raise BrokenPromise(otherwise)
