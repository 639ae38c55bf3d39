"""Power failures at every step of a merge, a commit and a clean: a version is all there or not.

`Power` counts system calls that write, and fails at one of them.  What was not flushed by then may
be lost: bytes that were not followed by fdatasync, and what was done to the names of a directory
that was not followed by its fsync.  Directories do not wait for each other.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from quipu.pipeline.tables import commits
from quipu.pipeline.tables.files import close_files
from tests.pipeline.tables.table_maker import LATEST, Event, Table


class PowerFailure(BaseException):
    """Not an Exception: nobody handles it."""


class Loss(Enum):
    """What a failure does to what was not flushed."""

    NOTHING = "all is kept"
    BYTES = "bytes are lost, names are kept"
    BOTH = "bytes and names are lost"


class Power:
    """Fails at the call number `left`; then `lose` does to the disk what such a failure may do."""

    def __init__(self, patch: pytest.MonkeyPatch, left: int) -> None:
        self._left = left
        self._unflushed: set[str] = set()
        self._made: dict[str, set[str]] = {}  # directory: names
        self._removed: dict[str, dict[str, bytes]] = {}  # directory: names and contents
        # whether flushing works is the kernel's business: here it is written down
        patch.setattr(os, "fdatasync", self._wrap(lambda _: None, self._flushed))
        patch.setattr(os, "fsync", self._wrap(lambda _: None, self._flushed_names))
        patch.setattr(os, "write", self._wrap(os.write, self._wrote))
        patch.setattr(os, "rename", self._wrap(os.rename, self._named))
        patch.setattr(os, "link", self._wrap(os.link, self._named))
        patch.setattr(os, "unlink", self._wrap(self._unlink(os.unlink), lambda *_: None))

    def _wrap(self, call: Callable[..., Any], after: Callable[..., None]) -> Callable[..., Any]:
        def called(*arguments: Any, **rest: Any) -> Any:
            if self._left == 0:
                raise PowerFailure
            self._left -= 1
            found = call(*arguments, **rest)
            after(*arguments)
            return found
        return called

    def _wrote(self, descriptor: int, _data: object) -> None:
        self._unflushed.add(_path_of(descriptor))

    def _flushed(self, descriptor: int) -> None:
        self._unflushed.discard(_path_of(descriptor))

    def _named(self, old: object, new: object) -> None:
        self._made.setdefault(str(Path(str(new)).parent), set()).add(str(new))
        if str(old) in self._unflushed:
            self._unflushed.add(str(new))

    def _unlink(self, call: Callable[..., None]) -> Callable[[Path], None]:
        def unlink(path: Path) -> None:
            content = path.read_bytes()
            call(path)
            self._removed.setdefault(str(path.parent), {})[str(path)] = content
        return unlink

    def _flushed_names(self, descriptor: int) -> None:
        directory = _path_of(descriptor)
        self._made.pop(directory, None)
        self._removed.pop(directory, None)

    def lose(self, loss: Loss) -> None:
        """The worst of its kind: removed manifests come back, removed files do not."""
        if loss is Loss.NOTHING:
            return
        for path in map(Path, self._unflushed):
            if path.exists():
                path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        if loss is Loss.BYTES:
            return
        for names in self._made.values():
            for name in names:
                Path(name).unlink(missing_ok=True)
        for directory, removed in self._removed.items():
            for name, content in removed.items():
                if directory.endswith("versions") and name.endswith(".json"):
                    Path(name).write_bytes(content)


def _path_of(descriptor: int) -> str:
    return str(Path(f"/proc/self/fd/{descriptor}").readlink())


def batches() -> Iterator[tuple[int, list[Event]]]:
    """Some versions, the last of which merges runs and rewrites data."""
    for version in range(6):
        yield version, [Event(key, value=version) for key in "abcdefgh"[version % 3:]]


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.pipeline.tables.test_table_model import SMALL

    for module, name, value in SMALL:
        monkeypatch.setattr(module, name, value)


def prepared(directory: Path) -> tuple[Table, int, list[Event]]:
    """A table before its last batch."""
    table = Table(directory, LATEST)
    *before, (version, events) = batches()
    for earlier, those in before:
        table.merge(earlier, [those])
    return table, version, events


def fail_at(step: int, act: Callable[[], object], loss: Loss) -> bool:
    """Act, with a power failure at a step, or afterwards if it is done by then: False."""
    close_files()
    with pytest.MonkeyPatch.context() as patch:
        power = Power(patch, step)
        try:
            act()
        except PowerFailure:
            failed = True
        else:
            failed = False
    power.lose(loss)
    close_files()  # the next one is another process
    return failed


EVERY_LOSS = pytest.mark.parametrize("loss", Loss, ids=[loss.value for loss in Loss])


@EVERY_LOSS
def test_a_merge_that_fails_at_any_step_can_be_tried_again(tmp_path: Path, loss: Loss) -> None:
    """I11: the version before stays whole, the next is made once, and no file is left lying."""
    original, version, events = prepared(tmp_path / "original")
    before = original.rows(version - 1)
    failed, steps = True, 0
    while failed:
        directory = tmp_path / str(steps)
        shutil.copytree(original.directory, directory)
        table = Table(directory, LATEST)
        failed = fail_at(steps, partial(table.merge, version, [events]), loss)
        last = commits.versions(directory)[-1]
        assert last == version or (failed and last == version - 1)
        assert table.rows(version - 1) == before
        table.merge(version, [events])  # nothing, if it was committed
        check_last(table, version)
        table.clean(1)
        assert table.files() == commits.latest(directory).files()
        assert [path.stem for path in (directory / "versions").iterdir()] == [f"{version:020d}"]
        check_last(table, version)
        steps += 1
    assert steps > 20


def check_last(table: Table, version: int) -> None:
    """The rows after all batches."""
    want: dict[str, int] = {}
    for _, events in batches():
        want |= {event.key: event.value for event in events}
    assert table.rows(version) == dict.fromkeys(want.items(), 1)


@EVERY_LOSS
def test_cleaning_that_fails_at_any_step_loses_nothing(tmp_path: Path, loss: Loss) -> None:
    """A manifest that is there can be read; the rest goes next time."""
    original, version, events = prepared(tmp_path / "original")
    original.merge(version, [events])
    failed, steps = True, 0
    while failed:
        directory = tmp_path / str(steps)
        shutil.copytree(original.directory, directory)
        table = Table(directory, LATEST)
        failed = fail_at(steps, partial(table.clean, 2), loss)
        for known in commits.versions(directory):
            table.rows(known)
        check_last(table, version)
        table.clean(1)
        assert table.files() == commits.latest(directory).files()
        steps += 1
    assert steps > 3


def test_a_full_disk_is_an_error_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    table, version, events = prepared(tmp_path)
    before = table.files()

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space"):
            table.merge(version, [events])
    assert table.files() == before
    table.merge(version, [events])
    check_last(table, version)
