"""The sources of an earlier version of this program, from the history of the repository."""

import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from tests.harness.node import REPOSITORY


def earlier_version(folder: Path, subject: str) -> Path:
    """The sources of the commit with this subject; their compiled parts run as Python."""
    def git(*words: str) -> bytes:
        return subprocess.run(["git", "-C", str(REPOSITORY), *words], check=True,
                              capture_output=True).stdout

    if git("rev-parse", "--is-shallow-repository").strip() != b"false":
        pytest.skip("the earlier version is in the history, which a shallow clone does not have: "
                    "git fetch --unshallow")
    commits = git("log", "--format=%H", "--fixed-strings", f"--grep={subject}").split()
    assert commits, f"the history has no commit {subject!r}"
    with tarfile.open(fileobj=BytesIO(git("archive", commits[-1].decode(), "src"))) as files:
        files.extractall(folder, filter="data")
    return folder / "src"
