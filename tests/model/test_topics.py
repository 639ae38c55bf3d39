"""Topic names: Kafka's rules."""

import pytest

from quipu.model.errors import Code
from quipu.model.topics import InvalidTopicName, check_topic_name, clash_key, is_internal

GOOD = ["a", "A-b_c.9", "...", "x" * 249, "__consumer_offsets", "-", "..a"]
BAD = [
    ("empty", ""),
    ("the directory itself", "."),
    ("the directory above", ".."),
    ("one character too long", "x" * 250),
    ("a slash would leave the data directory", "a/b"),
    ("a space", "a b"),
    ("not ASCII", "größe"),
    ("a digit, but not an ASCII one", "a\N{SUPERSCRIPT TWO}"),
    ("a line break at the end", "a\n"),
    ("a zero byte", "a\x00"),
    ("the log of cluster metadata", "__cluster"),
    ("the log of the node itself", "__node"),
]


@pytest.mark.parametrize("name", GOOD)
def test_a_legal_name_passes(name: str) -> None:
    """K5: what Kafka accepts is accepted."""
    check_topic_name(name)


@pytest.mark.parametrize(("why", "name"), BAD, ids=[why for why, _ in BAD])
def test_an_illegal_name_is_refused(why: str, name: str) -> None:
    """K5: what Kafka refuses is refused, with Kafka's code."""
    with pytest.raises(InvalidTopicName) as caught:
        check_topic_name(name)

    assert caught.value.code is Code.INVALID_TOPIC_EXCEPTION
    assert len(str(caught.value)) < 400


def test_a_dot_and_an_underscore_clash() -> None:
    assert clash_key("a.b_c") == clash_key("a_b.c")
    assert clash_key("a.b") != clash_key("a-b")


def test_only_topics_of_the_cluster_are_internal() -> None:
    assert is_internal("__consumer_offsets")
    assert not is_internal("__my_topic")
