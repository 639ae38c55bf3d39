"""The Python module that a page of the documentation shows, for tests that use it as users do."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def page_code(page: str) -> str:
    """The only block of Python on a page."""
    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    assert isinstance(code, str)
    return code


@contextmanager
def page_module(page: str, folder: Path, module: str) -> Iterator[Path]:
    """A folder with the page's code as `module`, which is forgotten afterwards."""
    folder.mkdir()
    (folder / f"{module}.py").write_text(page_code(page))
    before = list(sys.path)
    try:
        yield folder
    finally:
        sys.path[:] = before
        sys.modules.pop(module, None)
