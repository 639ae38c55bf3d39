"""Draws the pictures of docs/concepts/diskless-placement.md from the code that they show.

    rack-states.svg      the states of a rack: the table of controller/racks.py
    reconciliation.svg   one partition, step by step: what controller/managed plans for it

With --check, compares them with what is committed.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from quipu.controller.managed.load import ReplicaLoad
from quipu.controller.managed.placing import place
from quipu.controller.managed.planning import Planner, Replicas
from quipu.controller.managed.topology import Topology
from quipu.controller.members import BrokerState
from quipu.controller.racks import TRANSITIONS, RackEvent, RackState
from quipu.model.ids import NodeId
from tools.pages import write_or_check

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "concepts"
STATES = FOLDER / "rack-states.svg"
STEPS = FOLDER / "reconciliation.svg"

EVENT_TEXT = {
    RackEvent.LAST_BROKER_DOWN: "the last broker goes down",
    RackEvent.THRESHOLD_EXCEEDED: "the threshold is over",
    RackEvent.BROKER_UP: "a broker is up",
}
STATE_TEXT = {
    RackState.HEALTHY: ("a replica of every", "partition is here"),
    RackState.DEGRADED: ("replicas stay,", "none is added"),
    RackState.UNAVAILABLE: ("replicas are removed,", "the factor is one less"),
}
FILLS = {RackState.HEALTHY: "#d8f0d8", RackState.DEGRADED: "#fdf0c8",
         RackState.UNAVAILABLE: "#f8d8d4"}
BOX, GAP, TOP, HEIGHT = 190, 220, 40, 80  # of the states
RACKS = {"r1": (1, 4), "r2": (2, 5), "r3": (3, 6)}
COLUMN, ROW, LEFT, HEAD = 130, 48, 330, 50  # of the steps


class Moment(NamedTuple):
    """A partition at one moment, and why it is so."""

    caption: str
    replicas: Replicas
    leader: NodeId
    topology: Topology


# --- the states of a rack ---------------------------------------------------------------------


def rack_states() -> str:
    """A box for each state, and an arrow for each transition."""
    states = list(TRANSITIONS)
    width = len(states) * BOX + (len(states) - 1) * GAP + 40
    parts: list[str] = []
    for place_, state in enumerate(states):
        left = _left(place_)
        parts += [
            (f'<rect x="{left}" y="{TOP}" width="{BOX}" height="{HEIGHT}" rx="8" '
             f'fill="{FILLS[state]}" stroke="#333"/>'),
            _text(left + BOX / 2, TOP + 26, state.name, "bold"),
            *(_text(left + BOX / 2, TOP + 48 + 18 * line, words)
              for line, words in enumerate(STATE_TEXT[state]))]
        for event, target in TRANSITIONS[state].items():
            parts += _arrow(place_, states.index(target), EVENT_TEXT[event])
    return _svg(width, 230, parts)


def _arrow(source: int, target: int, label: str) -> list[str]:
    """Forwards between the boxes; backwards below them, deeper the further it goes."""
    if target > source:
        x1, x2, y = _left(source) + BOX, _left(target), TOP + HEIGHT / 2
        return [_path(f"M {x1} {y} L {x2 - 2} {y}"), _text((x1 + x2) / 2, y - 8, label)]
    depth = TOP + HEIGHT + 36 * (source - target)
    x1, x2 = _left(source) + BOX / 2, _left(target) + BOX / (2 + source - target)
    return [_path(f"M {x1} {TOP + HEIGHT} L {x1} {depth} L {x2} {depth} L {x2} {TOP + HEIGHT + 2}"),
            _text((x1 + x2) / 2, depth + 18, label)]


def _left(place_: int) -> int:
    return 20 + place_ * (BOX + GAP)


# --- a reconciliation -------------------------------------------------------------------------


def reconciliation() -> str:
    """A row for each moment, a column for each rack; a circle for each of its brokers."""
    moments = list(story())
    width, height = LEFT + COLUMN * len(RACKS) + 120, HEAD + ROW * len(moments) + 40
    parts = [_text(LEFT + COLUMN * (number + 0.5), 30, rack, "bold")
             for number, rack in enumerate(RACKS)]
    parts.append(_text(width - 60, 30, "effective RF", "bold"))
    for row, moment in enumerate(moments):
        y = HEAD + ROW * (row + 0.5)
        parts.append(_text(20, y + 5, moment.caption, anchor="start"))
        parts.append(_text(width - 60, y + 5, str(moment.topology.effective_factor)))
        for column, members in enumerate(RACKS.values()):
            for side, number in enumerate(members):
                x = LEFT + COLUMN * column + COLUMN * (side + 1) / 3
                parts += _broker(x, y, NodeId(number), moment)
    parts.append(_text(20, height - 12, "blue: replica    double ring: leader    dashed: down",
                       anchor="start"))
    return _svg(width, height, parts)


def story() -> Iterator[Moment]:
    """What happens to a partition; each change of the controller is planned by its own code."""
    load = ReplicaLoad()
    all_up = _topology()
    (replicas,) = place(all_up, load, 1)
    leader = replicas[0]
    yield Moment("created: one replica in each rack", replicas, leader, all_up)
    operator = (replicas[0], NodeId(4), replicas[1])
    load = ReplicaLoad()
    load.count_all([operator])
    yield Moment("an operator moves a replica: drift", operator, leader, all_up)
    repaired = list(_steps(Moment("", operator, leader, all_up), load))
    yield from repaired
    now = repaired[-1]
    r3 = [NodeId(number) for number in RACKS["r3"]]
    yield now._replace(caption="rack r3 is lost: DEGRADED", topology=_topology(down=r3))
    given_up = now._replace(topology=_topology(down=r3, given_up=True))
    yield given_up._replace(caption="the threshold is over: UNAVAILABLE")
    without = list(_steps(given_up, load))
    yield from without
    back = without[-1]._replace(caption="rack r3 is back: HEALTHY", topology=all_up)
    yield back
    yield from _steps(back, load)


def _steps(now: Moment, load: ReplicaLoad) -> Iterator[Moment]:
    """Until the planner leaves the partition alone."""
    planner = Planner(now.topology, load)
    while (step := planner.next_step(now.replicas, now.leader)) is not None:
        verb = "adds" if len(step.replicas) > len(now.replicas) else "removes"
        changed = set(step.replicas) ^ set(now.replicas)
        caption = f"the controller {verb} {', '.join(map(str, sorted(changed)))}"
        now = Moment(caption, step.replicas, step.leader, now.topology)
        yield now


def _topology(down: Sequence[NodeId] = (), *, given_up: bool = False) -> Topology:
    return Topology.of(
        BrokerState(node_id=NodeId(number), host="", port=0, rack=rack, fenced=number in down,
                    fenced_at_ms=int(number in down), given_up=number in down and given_up)
        for rack, members in RACKS.items() for number in members)


def _broker(x: float, y: float, node_id: NodeId, moment: Moment) -> list[str]:
    is_replica = node_id in moment.replicas
    is_up = node_id in moment.topology.up
    fill = "#a8c8f0" if is_replica else "#fff"
    dashes = "none" if is_up else "4 3"
    parts = [(f'<circle cx="{x:g}" cy="{y:g}" r="16" fill="{fill}" stroke="#333" '
              f'stroke-dasharray="{dashes}"/>')]
    if node_id == moment.leader and is_replica:
        parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="20" fill="none" stroke="#333"/>')
    return [*parts, _text(x, y + 5, str(node_id))]


# --- drawing ----------------------------------------------------------------------------------


def _text(x: float, y: float, text: str, weight: str = "normal", anchor: str = "middle") -> str:
    return (f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-weight="{weight}">'
            f'{escape(text)}</text>')


def _path(points: str) -> str:
    return f'<path d="{points}" fill="none" stroke="#333" marker-end="url(#tip)"/>'


def _svg(width: float, height: float, parts: Sequence[str]) -> str:
    return "\n".join([
        (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
         f'width="{width:g}" font-family="sans-serif" font-size="14">'),
        ('<defs><marker id="tip" markerWidth="10" markerHeight="8" refX="9" refY="4" '
         'orient="auto"><path d="M 0 0 L 10 4 L 0 8 z" fill="#333"/></marker></defs>'),
        f'<rect width="{width:g}" height="{height:g}" fill="#fff"/>', *parts, "</svg>", ""])


def main() -> int:
    """Write both pictures, or compare them."""
    return max(write_or_check(STATES, rack_states()), write_or_check(STEPS, reconciliation()))


if __name__ == "__main__":
    sys.exit(main())
