"""A program that writes until it is killed: what it wrote before has to be there."""

import subprocess
import sys
import time
from pathlib import Path

NUMBERS_MIN = 20  # written before it is killed
KILL_AFTER_SECONDS = (0.001, 0.004)  # so that it dies at different places


def kill_writer(program: Path, *arguments: str, after_seconds: float) -> int:
    """Run a program that prints 0, 1, 2, ... as it has written each; kill it in the middle.

    The last number that it printed.
    """
    writer = subprocess.Popen([sys.executable, str(program), *arguments], stdout=subprocess.PIPE,
                              text=True)
    assert writer.stdout is not None
    last = -1
    while last < NUMBERS_MIN:
        line = writer.stdout.readline()
        assert line, "it ended by itself"
        last = int(line)
    time.sleep(after_seconds)
    writer.kill()
    printed = max([last, *map(int, writer.stdout.read().split())])
    writer.wait()
    writer.stdout.close()
    return printed
