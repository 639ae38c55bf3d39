"""Optional compiled helpers: built where a C compiler is found, done without where there is none.

Everything else about the package is in pyproject.toml.  A helper is a Cython module next to the
pure-Python one that it speeds up, named `_fast.pyx`; the pure one stays, as fallback and oracle.
"""

from pathlib import Path

from setuptools import Extension, setup

try:
    from Cython.Build import cythonize
except ImportError:  # a source install without Cython: the pure modules serve
    cythonize = None

_SOURCES = sorted(Path("src").glob("quipu/**/_fast.pyx"))


def _module_name(source: Path) -> str:
    return ".".join(source.relative_to("src").with_suffix("").parts)


def _extensions() -> list[Extension]:
    if cythonize is None or not _SOURCES:
        return []
    modules = [
        Extension(_module_name(source), [str(source)], extra_compile_args=["-O3"], optional=True)
        for source in _SOURCES
    ]
    return list(cythonize(modules, language_level=3))


setup(ext_modules=_extensions())
