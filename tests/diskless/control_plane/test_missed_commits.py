"""Commits that nobody told of."""

from quipu.diskless.control_plane.missed_commits import LOOKS, MissedCommits


def test_what_was_heard_of_is_not_missed() -> None:
    """D5: diskless.C9: before or after it was seen; what is new may still be told of."""
    missed = MissedCommits(10)
    missed.heard([11])
    assert not missed.look([11, 12])
    missed.heard([12])
    assert not missed.look([11, 12, 13])
    assert missed.look([11, 12, 13, 14])
    assert missed.look([11, 12, 13, 14]), "14 too, at the next look"
    assert not missed.look([11, 12, 13, 14])


def test_a_number_that_becomes_visible_late_is_noticed() -> None:
    """D5: diskless.C9: a lower number than others that were seen before."""
    missed = MissedCommits(10)
    missed.heard([12])
    assert not missed.look([12])
    assert not missed.look([11, 12])
    assert missed.look([11, 12])


def test_looks_are_bounded() -> None:
    """D5: only the last few looks' objects are remembered."""
    missed = MissedCommits(0)
    for number in range(1, 100):
        missed.heard([number])
        assert not missed.look(range(missed.floor + 1, number + 1))
        assert missed.floor == max(0, number - LOOKS + 1)
        assert len(missed._heard) < LOOKS
