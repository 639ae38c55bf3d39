"""Garbage collections: short whatever lives, and nothing is lost sight of for good."""

import subprocess
import sys

PROGRAM = """
import gc, sys, weakref
from quipu.runtime import garbage
garbage.LONG_SECONDS, garbage.LOOK_AGAIN_MIN = 0.0, 1000
garbage.keep_collections_short()

class Node:
    pass

def cycle():
    a, b = Node(), Node()
    a.other, b.other = b, a
    return a

frozen = gc.get_freeze_count()
kept = [cycle() for _ in range(300)]
gc.collect()
assert gc.get_freeze_count() > frozen + 600, "survivors are left out of later collections"
found = []
doomed = weakref.finalize(kept[0], found.append, True)
kept.clear()
gc.collect()
assert not found, "a cycle among what is left out is not found yet"
more = []
while not found and len(more) < 2_000_000:
    more += [[] for _ in range(10_000)]
    gc.collect()
assert found, "it is found when what is left out has doubled"
print("ok")
"""


def test_what_survives_is_left_out_until_it_has_doubled() -> None:
    """K8: collections look at what is new; cycles among the rest are found in the end."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "ok\n", done.stderr
