"""The pictures of managed placement show what the code does."""

import sys
import xml.etree.ElementTree as ET

import pytest

from quipu.controller.racks import TRANSITIONS
from tools import placement_pictures


def texts(picture: str) -> list[str]:
    return [each.text or "" for each in ET.fromstring(picture).iter()
            if each.tag.endswith("text")]


def test_the_pictures_are_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    """K11: generated from the code, and committed."""
    monkeypatch.setattr(sys, "argv", ["placement_pictures.py", "--check"])

    assert placement_pictures.main() == 0


def test_every_state_and_every_transition_is_drawn() -> None:
    """D12: controller.K3, a box for each state, an arrow with its event for each transition."""
    picture = placement_pictures.rack_states()
    found = texts(picture)
    for state, targets in TRANSITIONS.items():
        assert state.name in found
        for event in targets:
            assert placement_pictures.EVENT_TEXT[event] in found
    assert picture.count("marker-end") == sum(map(len, TRANSITIONS.values()))


def test_the_story_ends_as_it_began() -> None:
    """D13, D15: drift is repaired by adding, then removing; a lost rack costs one replica, and its
    return gives it back; the leader never moves.
    """
    moments = list(placement_pictures.story())
    assert moments[0].replicas == moments[-1].replicas
    assert {moment.leader for moment in moments} == {moments[0].leader}
    said = [moment.caption.split()[2] for moment in moments
            if moment.caption.startswith("the controller")]
    assert said == ["adds", "removes", "removes", "adds"]
    assert [moment.topology.effective_factor for moment in moments] == [3] * 5 + [2] * 2 + [3] * 2
    assert len(texts(placement_pictures.reconciliation())) == len(moments) * (2 + 6) + 5
