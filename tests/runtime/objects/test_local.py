"""A store in a directory: its files, several processes that share it, and errors of the disk."""

import asyncio
import errno
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from quipu.runtime.objects import local
from quipu.runtime.objects.errors import (
    ObjectStoreError,
    PreconditionFailed,
    StoreDenied,
    StoreUnavailable,
)
from quipu.runtime.objects.local import ABANDONED_SECONDS, LocalStore
from tests.looped import looped


@looped
async def test_an_object_is_one_file_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    """The layout is that of the module's docstring."""
    store = LocalStore(str(tmp_path))
    await store.put("a/b/name", [b"1"])
    await store.put("a/b", [b"2"])
    assert (tmp_path / "a~" / "b~" / "name").read_bytes() == b"1"
    assert (tmp_path / "a~" / "b").read_bytes() == b"2"
    with pytest.raises(PreconditionFailed):
        await store.put("a/b", [b"3"], if_absent=True)
    assert list((tmp_path / ".tmp").iterdir()) == []
    await store.close()


@looped
async def test_an_object_is_synced_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """runtime.O3: first the bytes, then the name, then the folders that hold it."""
    events: list[str] = []
    store = LocalStore(str(tmp_path))
    fsync, replace = os.fsync, Path.replace

    def watched_sync(descriptor: int) -> None:
        path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        is_temporary = "/.tmp/" in path
        events.append("sync bytes" if is_temporary else f"sync {Path(path).relative_to(tmp_path)}")
        fsync(descriptor)

    def watched_replace(path: Path, target: Path) -> Path:
        events.append(f"name {target.relative_to(tmp_path)}")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", watched_sync)
    monkeypatch.setattr(Path, "replace", watched_replace)
    await store.put("a/b/c", [b"1"])
    assert events == ["sync .", "sync a~", "sync bytes", "name a~/b~/c", "sync a~/b~"]
    events.clear()
    await store.delete(["a/b/c"])
    assert events == ["sync a~/b~"]
    await store.close()


def test_two_processes_agree_on_who_creates(tmp_path: Path) -> None:
    """runtime.O2: each key is created by one of them."""
    program = (
        "import asyncio, sys\n"
        "from quipu.runtime.objects.local import LocalStore\n"
        "from quipu.runtime.objects.errors import PreconditionFailed\n"
        "async def main():\n"
        "    store, won = LocalStore(sys.argv[1]), 0\n"
        "    for number in range(100):\n"
        "        try:\n"
        "            await store.put(f'k/{number}', [b'x'], if_absent=True)\n"
        "            won += 1\n"
        "        except PreconditionFailed:\n"
        "            pass\n"
        "    print(won)\n"
        "asyncio.run(main())\n")
    processes = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path)],
                                  stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert sum(int(process.communicate(timeout=60)[0]) for process in processes) == 100


@looped
async def test_what_a_process_left_unfinished_goes_after_a_day(tmp_path: Path) -> None:
    """Another process that shares the store may be writing now."""
    await LocalStore(str(tmp_path)).close()
    old, new = tmp_path / ".tmp" / "old", tmp_path / ".tmp" / "new"
    old.write_bytes(b"1")
    new.write_bytes(b"2")
    long_ago = time.time() - 2 * ABANDONED_SECONDS
    os.utime(old, (long_ago, long_ago))
    await LocalStore(str(tmp_path)).close()
    assert (old.exists(), new.exists()) == (False, True)


@pytest.mark.parametrize(("number", "wanted"), [
    (errno.ENOSPC, StoreUnavailable), (errno.EMFILE, StoreUnavailable),
    (errno.EACCES, StoreDenied), (errno.EROFS, StoreDenied), (errno.EIO, ObjectStoreError)])
@looped
async def test_what_the_file_system_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, wanted: type[ObjectStoreError]
) -> None:
    """Each error by what to do about it; nothing of the object is seen."""
    store = LocalStore(str(tmp_path))

    def refuse(*args: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(local, "_write", refuse)
    with pytest.raises(ObjectStoreError) as error:
        await store.put("a", [b"1"])
    assert type(error.value) is wanted
    assert (await store.list()).objects == ()
    await store.close()


@looped
async def test_who_gives_up_leaves_nothing(tmp_path: Path) -> None:
    """A put in parts that is cancelled."""
    store = LocalStore(str(tmp_path))
    waiting = asyncio.Event()

    async def parts() -> Any:
        yield b"1"
        waiting.set()
        await asyncio.sleep(60)

    task = asyncio.get_running_loop().create_task(store.put_parts("a", parts()))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert list((tmp_path / ".tmp").iterdir()) == []
    assert (await store.list()).objects == ()
    await store.close()
