"""Describes the machine of a run: only numbers of the same machine can be compared."""

import os
import platform
import sysconfig
from importlib import metadata
from pathlib import Path

from quipu import __version__
from quipu.wire import fast


def machine() -> dict[str, object]:
    """Processor, memory, kernel, versions, and whether `wire.fast` is compiled."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": _field("/proc/cpuinfo", "model name"),
        "memory": _field("/proc/meminfo", "MemTotal"),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "python_build": python_build(),
        "uvloop": metadata.version("uvloop"),
        "quipu": __version__,
        "helper": "compiled" if fast.COMPILED else "plain Python",
    }


def python_build() -> str:
    """How Python was built: with PGO and LTO a request costs about a tenth less CPU."""
    words = " ".join(
        str(sysconfig.get_config_var(name) or "") for name in ("CONFIG_ARGS", "PY_CORE_CFLAGS")
    )
    guided = "--enable-optimizations" in words or "-fprofile-use" in words
    linked = "--with-lto" in words or "-flto" in words
    return f"{'PGO' if guided else 'no PGO'}, {'LTO' if linked else 'no LTO'}"


def _field(path: str, name: str) -> str:
    try:
        lines = Path(path).read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return "unknown"
    found = (line.partition(":")[2].strip() for line in lines if line.startswith(name))
    return next(found, "unknown")
