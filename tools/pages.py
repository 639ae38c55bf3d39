"""Generated pages: write one, or with --check on the command line compare it with the file."""

import sys
from pathlib import Path


def write_or_check(page: Path, wanted: str) -> int:
    """The exit code: 1 if the page was to be checked and is not what would be written."""
    if "--check" not in sys.argv[1:]:
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(wanted, encoding="utf-8")
        return 0
    if page.exists() and page.read_text(encoding="utf-8") == wanted:
        return 0
    print(f"{page.name} is out of date: run `make docs`", file=sys.stderr)
    return 1
