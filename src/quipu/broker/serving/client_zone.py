"""The zone that a client is in, by what it says of itself: for what it is shown of diskless topics.

    client.id   `diskless_az=ZONE`, at its start or after a space, a comma or a bar; the first one
                counts.  Connect and others append `-configs` or `-0` to the ids that they are
                given: what follows a dash is dropped, piece by piece, until the rest is known
    listener    diskless.client.az.listener.map names the zone of the clients of a listener; it
                counts if the client id names no known zone

A zone is what brokers call their rack.  Brokers without one are in the zone `unknown`.

Invariants
    broker.serving.Z1  the zone of a client is one that is known: the rack of a registered broker,
                       or one in the listener map.  So clients cannot make zones up, and what is
                       kept for each zone is bounded
    broker.serving.Z2  a client id costs a search that is linear in its length, and one comparison
                       with each known zone, whatever it is; one without `diskless_az=` costs
                       neither

Not here: what a client is shown (zone_views.py), the rack that a Fetch carries (fetching.py).
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from quipu.broker.serving.context import Broker, Context
from quipu.controller.members import BrokerState
from quipu.controller.racks import rack_of

_MARK: Final = "diskless_az="
_SAID: Final = re.compile(r"(?:^|[ ,|])diskless_az=([^=,| ]*)")


def zone_of(broker: Broker, context: Context) -> str | None:
    """The zone of the client that sent a request; None if it has none."""
    by_listener = dict(broker.settings.diskless_client_az_listener_map)
    return client_zone(
        context.client_id, context.listener.name, by_listener,
        broker.cluster.state.brokers.values())


def client_zone(
    client_id: str | None, listener: str, by_listener: Mapping[str, str],
    brokers: Iterable[BrokerState],
) -> str | None:
    """The zone of a client with this id, that came by this listener."""
    said = said_zone(client_id)
    if said:
        found = known_zone(said, {*map(rack_of, brokers), *by_listener.values()})
        if found is not None:
            return found
    return by_listener.get(listener)


def said_zone(client_id: str | None) -> str:
    """What a client id says after `diskless_az=`, known or not; empty if it says nothing."""
    if client_id is None or _MARK not in client_id:
        return ""
    found = _SAID.search(client_id)  # broker.serving.Z2
    return "" if found is None else found[1]


def known_zone(said: str, known: Collection[str]) -> str | None:
    """The known zone that is `said`, or the longest that is before one of its dashes."""
    # broker.serving.Z1
    found = [zone for zone in known
             if said.startswith(zone) and said[len(zone):len(zone) + 1] in ("", "-")]
    return max(found, key=len, default=None)
