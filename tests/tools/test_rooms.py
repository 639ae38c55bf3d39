"""Maps, invariants and docstrings are checked by rules that can fail."""

import pytest

from tools.rooms import breaches
from tools.tidy import Source

MAP = '''"""A room.

    log.py      the log
    _fast.pyx, _fast_pure.py    its helper, twice
    inner/      a room

Start at `log.py`.  Not here: sockets.
"""
'''
LOG = '''"""The log.

Invariants
    storage.L1  the start is not beyond the end
"""

x = 1  # storage.L1
'''
INNER = '"""A room without modules."""\n'
HOUSE = {
    "src/quipu/storage/__init__.py": MAP,
    "src/quipu/storage/log.py": LOG,
    "src/quipu/storage/_fast.pyx": "x = 1\n",
    "src/quipu/storage/_fast_pure.py": '"""A helper."""\n',
    "src/quipu/storage/inner/__init__.py": INNER,
    "tests/storage/test_log.py": '"""storage.L1 holds."""\n',
}


def found(changes: dict[str, str]) -> list[str]:
    """What is wrong with the house after `changes`."""
    house = HOUSE | changes
    return [breach.message for breach in breaches([Source(*item) for item in house.items()])]


def test_a_house_in_order_has_no_breach() -> None:
    assert found({}) == []


CASES = [
    ("a module that the map leaves out", {"src/quipu/storage/new.py": '"""New."""\n'},
     "the map does not name new.py"),
    ("a room that the map leaves out", {"src/quipu/storage/deep/__init__.py": INNER},
     "the map does not name deep/"),
    ("a name without a module",
     {"src/quipu/storage/__init__.py": MAP.replace("    inner/", "    gone/   x\n    inner/")},
     "the map names gone/, which is not there"),
    ("a name twice",
     {"src/quipu/storage/__init__.py": MAP.replace("    inner/", "    log.py   x\n    inner/")},
     "the map names log.py more than once"),
    ("no place to start",
     {"src/quipu/storage/__init__.py": MAP.replace("Start at", "Look into")},
     "the map does not say where to start"),
    ("no word of what is absent",
     {"src/quipu/storage/__init__.py": MAP.replace("Not here: sockets.", "")},
     "the map does not say what is not there"),
    ("an invariant that nothing keeps",
     {"src/quipu/storage/log.py": LOG.replace("x = 1  # storage.L1", "x = 1")},
     "storage.L1 is cited where nothing keeps it"),
    ("an invariant that nothing tests", {"tests/storage/test_log.py": '"""Nothing."""\n'},
     "storage.L1 is named by no test"),
    ("an invariant declared twice",
     {"src/quipu/storage/_fast_pure.py": LOG.replace("x = 1  # storage.L1", "")},
     "storage.L1 is declared in src/quipu/storage/log.py too"),
    ("an invariant of another room",
     {"src/quipu/storage/log.py": LOG.replace("storage.L1", "raft.L1"),
      "tests/storage/test_log.py": '"""raft.L1 holds."""\n'},
     "raft.L1 is declared in another room than its own"),
    ("a citation of nothing", {"docs/a.md": "see storage.L9\n"}, "storage.L9 is declared nowhere"),
    ("a file that is gone, in a docstring",
     {"src/quipu/storage/_fast_pure.py": '"""A helper, see index.py and storage/log.py."""\n'},
     "index.py is not there"),
    ("a file that is gone, in a document", {"docs/a.md": "see `storage/old.py`\n"},
     "storage/old.py is not there"),
    ("an unqualified invariant",
     {"src/quipu/storage/_fast_pure.py": '"""A helper.\n\nInvariants\n    B2  it is fast\n"""\n'},
     "B2: say of which room it is"),
    ("a class of another room",
     {"src/quipu/storage/_fast_pure.py": '"""A helper."""\n\nclass Log:\n    pass\n',
      "src/quipu/storage/inner/__init__.py": INNER + "\nclass Log:\n    pass\n"},
     "Log is a class of src/quipu/storage/_fast_pure.py too"),
    ("an empty docstring",
     {"src/quipu/storage/_fast_pure.py":
      '"""A helper."""\n\ndef f() -> None:\n    """See above."""\n'},
     "f: say it here, or nothing"),
]


@pytest.mark.parametrize(("changes", "message"), [case[1:] for case in CASES],
                         ids=[case[0] for case in CASES])
def test_a_breach_is_found(changes: dict[str, str], message: str) -> None:
    assert found(changes) == [message]
