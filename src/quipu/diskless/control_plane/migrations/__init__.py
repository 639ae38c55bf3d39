"""The schema of a control plane's database, as numbered steps.

    sqlite.py     the steps for SQLite
    postgres.py   the steps for PostgreSQL: the tables, and what installs the functions
    functions.py  what PostgreSQL runs for each operation: the functions of the next four
    commits.py    to create logs and commit objects
    looks.py      to find runs
    removals.py   to remove records, topics and runs
    restores.py   to rebuild a control plane
    fences.py     what keeps PostgreSQL from entering objects that were given up

Start with sqlite.py for the tables, and with functions.py for how PostgreSQL locks.

A step is never changed once it was released; a later one changes what it made.  The table
`diskless_versions` says which steps were carried out.

Not here: who carries the steps out (sqlite.py and postgres_pool.py of the control plane).
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from quipu.diskless.errors import UnusableControlPlane

VERSIONS_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS diskless_versions (version BIGINT PRIMARY KEY)")
SELECT_VERSION: Final = "SELECT max(version) FROM diskless_versions"


class Migration(NamedTuple):
    """One step."""

    version: int
    statements: Sequence[str]


def pending(found: int | None, known: Sequence[Migration]) -> Sequence[Migration]:
    """The steps that a database of version `found` still needs; refuses a newer one."""
    newest = known[-1].version
    if found is not None and found > newest:
        raise UnusableControlPlane(
            f"the control plane's schema has version {found}, and this program knows versions up "
            f"to {newest}: run the newer program, or restore a backup of the older schema")
    return [each for each in known if found is None or each.version > found]
