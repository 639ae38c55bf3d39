"""Which keys objects may have: those that every store supports, and that stay inside the store.

A key is one or more names with `/` between them, KEY_SIZE_MAX characters at most.  A name has up to
NAME_SIZE_MAX of the characters A-Z a-z 0-9 - _ . = + @ , and does not begin with a dot.

Invariants
    runtime.O4  a key can only name an object inside its store: a name that could be a parent
                folder, an absolute path or a file of the store itself is refused
"""

import re
from typing import Final

from quipu.runtime.objects.errors import InvalidObjectRequest

KEY_SIZE_MAX: Final = 800  # S3 allows 1024, with a prefix for the whole store
NAME_SIZE_MAX: Final = 200  # file systems allow 255
_NAME: Final = re.compile(rf"[A-Za-z0-9\-_=+@,][A-Za-z0-9\-_.=+@,]{{0,{NAME_SIZE_MAX - 1}}}")


def check_key(key: str) -> None:
    """Raise `InvalidObjectRequest` unless `key` is allowed (runtime.O4)."""
    if len(key) > KEY_SIZE_MAX or not all(map(_NAME.fullmatch, key.split("/"))):
        raise InvalidObjectRequest(
            f"{key[:80]!r} cannot be an object's key: write names of A-Z a-z 0-9 - _ . = + @ , "
            "that do not begin with a dot, with / between them, "
            f"{KEY_SIZE_MAX} characters at most")


def check_prefix(prefix: str) -> None:
    """Raise `InvalidObjectRequest` unless some key could begin with `prefix` (runtime.O4)."""
    *names, last = prefix.split("/")
    if len(prefix) > KEY_SIZE_MAX or not all(map(_NAME.fullmatch, names)) or (
            last and _NAME.fullmatch(last) is None):
        raise InvalidObjectRequest(f"no object's key can begin with {prefix[:80]!r}")
