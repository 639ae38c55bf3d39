"""`quipu diskless`: commands for diskless topics.

    objects   lists what the control plane knows beside what the store has (diskless_objects.py)
    rebuild   fills an empty control plane from the objects (diskless_rebuild.py)
    tier      moves old records to the remote tier, on Spark (diskless_tier.py)
"""

import typer

from quipu.cli.application import PLAIN
from quipu.cli.diskless_objects import objects
from quipu.cli.diskless_rebuild import rebuild
from quipu.cli.diskless_tier import tier

app = typer.Typer(help="Look after the objects of diskless topics.", **PLAIN)
app.command()(objects)
app.command()(rebuild)
app.command()(tier)
