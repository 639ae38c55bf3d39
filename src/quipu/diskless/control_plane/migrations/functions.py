"""What PostgreSQL runs for each operation: one call is one transaction and one round trip.

Every function locks in the same order, so none waits for another in a circle: the row of a topic,
then rows of logs by their number, then rows of objects by their number.  A lock is never held while
a client is waited for, but by `restore_objects`, which rebuilds a control plane.

The number at the end of a name is its version: a change gets a new number in a new migration, as
nodes of an older version still call the old one.
"""

from typing import Final

from quipu.diskless.control_plane.migrations.commits import COMMITS
from quipu.diskless.control_plane.migrations.looks import LOOKS
from quipu.diskless.control_plane.migrations.removals import REMOVALS
from quipu.diskless.control_plane.migrations.restores import RESTORES

FUNCTIONS: Final = (*COMMITS, *REMOVALS, *LOOKS, *RESTORES)
