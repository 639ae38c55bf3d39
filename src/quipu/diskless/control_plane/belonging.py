"""A control plane belongs to one cluster (diskless.C11).

The controller of a cluster deletes the logs of topics that it does not know.  If it used the
database of another cluster, that would be all of them; so it asks whose it is before anything else.
"""

from quipu.diskless.control_plane.interface import ControlPlane
from quipu.diskless.errors import ForeignControlPlane


async def belong(plane: ControlPlane, cluster_id: str) -> None:
    """Bind a control plane to a cluster; raises `ForeignControlPlane` if it is another one's."""
    bound = await plane.bind(cluster_id)
    if bound != cluster_id:
        raise ForeignControlPlane(
            f"the control plane belongs to the cluster {bound}, and this is the cluster "
            f"{cluster_id}: nothing was changed. Give this cluster a database of its own (or a "
            "schema, or another SQLite file) in diskless.control.plane.url, and another prefix in "
            "diskless.storage.url. To have the records of the other one again, start its nodes "
            "with their old directories")
