"""Optional compiled helpers: built where a C compiler is found, done without where there is none.

Everything else about the package is in pyproject.toml.  A helper is a Cython module next to the
pure-Python one that it speeds up, `_fast.pyx` for `_fast_pure.py`; the pure one stays, as
fallback and oracle.
"""

import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

try:
    from Cython.Build import cythonize
except ImportError:  # a source install without Cython: the pure modules serve
    cythonize = None

_SOURCES = sorted(Path("src").glob("quipu/**/_*.pyx"))


def _module_name(source: Path) -> str:
    return ".".join(source.relative_to("src").with_suffix("").parts)


def _extensions() -> list[Extension]:
    if cythonize is None or not _SOURCES:
        return []
    modules = [
        Extension(
            _module_name(source), [str(source)], extra_compile_args=["-O3"],
            include_dirs=[str(source.parent)],
            depends=[str(header) for header in source.parent.glob("*.h")])
        for source in _SOURCES
    ]
    return list(cythonize(modules, language_level=3))


class OptionalBuild(build_ext):
    """A helper that cannot be compiled is left out, with a line that says so."""

    def run(self) -> None:
        try:
            super().run()
        except Exception as error:  # noqa: BLE001 compilers fail in many ways, none of them ours
            print(f"quipu: not compiled, plain Python will serve: {error}", file=sys.stderr)
            self.extensions = []


setup(ext_modules=_extensions(), cmdclass={"build_ext": OptionalBuild})
