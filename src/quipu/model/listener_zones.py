"""The type of a setting that maps listeners to zones: `INSIDE:az1,OUTSIDE:az2`.

Inkless writes `INSIDE=az1`; that is accepted too, as its name of the setting is.  A zone begins
after the first colon or equals sign, for a listener's name has neither.

Not here: what the zone of a client is for (broker/serving/client_zone.py).
"""

import re
from typing import Final

from quipu.model.listeners import LISTENERS_MAX, ListenerZone, is_listener_name
from quipu.model.settings_types import SettingType, ValueRule

ZONE_SIZE_MAX: Final = 255  # characters
_PAIR: Final = re.compile(r"([^:=]+)[:=]([^\x00-\x1f\x7f\ud800-\udfff]+)")


def _parse(value: str) -> tuple[ListenerZone, ...]:
    found = []
    for item in value.split(",") if value else []:
        pair = _PAIR.fullmatch(item.strip())
        if pair is None:
            raise ValueError
        name, zone = pair[1].strip().upper(), pair[2].strip()
        if not is_listener_name(name) or not 0 < len(zone) <= ZONE_SIZE_MAX:
            raise ValueError
        found.append(ListenerZone(name, zone))
    if len({each.listener for each in found}) < len(found) or len(found) > LISTENERS_MAX:
        raise ValueError
    return tuple(found)


LISTENER_ZONES: Final = ValueRule(
    SettingType.LIST, _parse,
    f"a comma list of LISTENER:ZONE, each listener once, {LISTENERS_MAX} at most, with zones of "
    f"{ZONE_SIZE_MAX} characters at most")
