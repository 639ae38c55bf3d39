"""Materialized views: versions, changes, errors, and batches that are tried again."""

import itertools
import random
import threading

import pytest

from quipu.pipeline.envelopes.contract import OutstandingErrors
from quipu.pipeline.spark.statements.subscribe import RowChange, Subscription
from quipu.pipeline.spark.views.changelog import ViewDropped
from quipu.pipeline.spark.views.stream import ViewStream
from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.views import versions
from tests.harness.progress import FINAL_SECONDS
from tests.pipeline.spark.workbench import Workbench

KEYED = "KEY FORMAT TEXT VALUE FORMAT TEXT INCLUDE KEY"


def changes(subscription: Subscription, count: int) -> list[tuple[int, str]]:
    """The next changes, without versions: diff and the row's values."""
    timer = threading.Timer(FINAL_SECONDS, subscription.close)  # then it is a failure
    timer.start()
    found = [(change.diff, " ".join(map(str, change.row.values())))
             for change in itertools.islice(subscription, count)]
    timer.cancel()
    assert len(found) == count, found
    return sorted(found)


def test_a_join_is_followed(work: Workbench) -> None:
    """I9, I13: a result over two sources, its rows and its changes."""
    people = work.source(f"{KEYED} ENVELOPE UPSERT", "1:Ada", "2:Bob")
    orders = work.source(KEYED, "1:tea", "2:jam", "1:tea")
    view = work.view(f"SELECT p.text AS who, o.text AS what FROM {people} p "
                     f"JOIN {orders} o USING (key)")

    assert work.rows(f"SELECT * FROM {view}") == [("Ada", "tea"), ("Ada", "tea"), ("Bob", "jam")]
    subscription = work.pipeline.subscribe(view)
    assert changes(subscription, 3) == [(1, "Ada tea"), (1, "Ada tea"), (1, "Bob jam")]
    work.send(people, "1:Eve")
    assert changes(subscription, 4) == [(-1, "Ada tea"), (-1, "Ada tea"), (1, "Eve tea"),
                                        (1, "Eve tea")]
    work.send(orders, "2:ink")
    assert changes(subscription, 1) == [(1, "Bob ink")]
    subscription.close()


def test_a_filter_is_followed_without_being_kept_twice(work: Workbench) -> None:
    """I13: the view is its source's table through the query; so is its changelog."""
    name = work.source(f"{KEYED} ENVELOPE UPSERT", "a:1", "b:20", "c:30")
    view = work.view(f"SELECT key, int(text) * 2 AS n FROM {name} WHERE int(text) > 10")

    assert work.rows(f"SELECT * FROM {view}") == [("b", 40), ("c", 60)]
    assert work.pipeline._live.maintained[view].view.files.result is None
    subscription = work.pipeline.execute(f"SUBSCRIBE TO {view} WITH (SNAPSHOT = FALSE)")
    assert isinstance(subscription, Subscription)
    work.send(name, "a:11", "b:5", "c:30")
    assert changes(subscription, 2) == [(-1, "b 40"), (1, "a 22")]
    subscription.close()
    assert list(subscription) == []


def test_views_over_views_and_unions(work: Workbench) -> None:
    """I9, I13: a kept view over another kept view, and over several sources."""
    first = work.source(KEYED, "a:1")
    second = work.source(KEYED, "b:2")
    both = work.view(f"SELECT key, text FROM {first} UNION ALL SELECT key, text FROM {second}")
    counted = work.view(f"SELECT count(*) AS n, max(text) AS top FROM {both}")
    work.send(second, "b:3")

    assert work.rows(f"SELECT * FROM {both}") == [("a", "1"), ("b", "2"), ("b", "3")]
    assert work.rows(f"SELECT * FROM {counted}") == [(3, "3")]
    assert work.rows(f"SELECT b.key FROM {both} b, {counted} c WHERE b.text = c.top") == [("b",)]
    with pytest.raises(SqlError, match="is needed by"):
        work.do(f"DROP SOURCE {first}")


def test_errors_of_a_strict_source_are_kept_and_taken_back(work: Workbench) -> None:
    """I15: a SELECT fails while a key has an error, and not after."""
    name = work.source(f"{KEYED} ENVELOPE UPSERT WITH (ERRORS = 'strict')", "a:1", b"b:\xff")
    view = work.view(f"SELECT * FROM {name}")

    with pytest.raises(OutstandingErrors, match="UTF-8"):
        work.rows(f"SELECT * FROM {view}")
    work.send(name, "b:")

    assert work.rows(f"SELECT * FROM {view}") == [("a", "1")]


def test_dead_letters_and_progress_are_kept(work: Workbench) -> None:
    """I15, I20: what could not be used, and how far the view is."""
    name = work.source("FORMAT TEXT", "k:1", b"k:\xff", "k:3")
    view = work.view(f"SELECT * FROM {name}")

    assert work.rows(f"SELECT * FROM {view}") == [("1",), ("3",)]
    assert work.rows(f"SELECT offset, value FROM {view}_dead_letters") == [(1, b"\xff")]
    (found,) = [each for each in work.pipeline.progress() if each.view == view]
    assert (found.source, found.messages, found.dead_letters, found.rows, found.lag) == (
        name, 3, 1, 2, 0)
    assert found.state == "running"
    assert any(row[0] == view for row in work.do("SHOW PROGRESS").rows)


def test_a_batch_that_is_tried_again_changes_nothing(work: Workbench) -> None:
    """I11: whatever part of a batch was committed before a crash, it counts once; pipeline.V4."""
    name = work.source(f"{KEYED} ENVELOPE UPSERT", "a:1", "b:2")
    view = work.view(f"SELECT text, count(*) AS n FROM {name} GROUP BY text")
    before = work.rows(f"SELECT * FROM {view}")
    running = work.pipeline._live.maintained[view]
    running.supervisor.stop()
    kept = running.view
    version = kept.files.latest()
    stream = kept.spark.read.format("parquet")  # never read: the batch is known to be done

    batch = version.number - 1
    ViewStream(kept, lambda: None).run_batch(stream, batch)
    assert kept.files.latest() == version
    # As if the crash came before the version was published:
    versions.version_path(kept.files.versions, version.number).unlink()
    (kept.files.checkpoint / "commits" / str(batch)).unlink(missing_ok=True)
    work.pipeline._live.maintained[view] = again = work.pipeline._live._maintain(
        kept.plan, kept.files.folder)
    again.supervisor.start()

    assert work.rows(f"SELECT * FROM {view}") == before == [("1", 1), ("2", 1)]
    assert again.view.files.latest().counts == version.counts
    again.supervisor.stop()


def test_a_view_can_be_replaced_and_dropped(work: Workbench) -> None:
    """I13: its files go with it."""
    name = work.source(KEYED, "a:1")
    view = work.view(f"SELECT key FROM {name}")
    folder = work.pipeline._live.maintained[view].view.files.folder
    assert work.rows(f"SELECT * FROM {view}") == [("a",)]

    work.do(f"CREATE OR REPLACE MATERIALIZED VIEW {view} AS SELECT text FROM {name}")
    assert work.rows(f"SELECT * FROM {view}") == [("1",)]
    assert not folder.exists()
    work.do(f"DROP MATERIALIZED VIEW {view}")
    with pytest.raises(SqlError, match=view):
        work.rows(f"SELECT * FROM {view}")


MISTAKES = [
    ("SELECT key, now() AS t FROM {s}", "clock"),
    ("SELECT key, rand() AS r FROM {s}", "chance"),
    ("SELECT key, text AS key FROM {s}", "more than once"),
    ("SELECT nothing FROM {s}", "cannot be resolved"),
    ("SELECT 1 AS one", "needs a source"),
]


@pytest.mark.parametrize(("query", "message"), MISTAKES, ids=[case[1] for case in MISTAKES])
def test_a_view_that_cannot_be_kept_is_refused(
    work: Workbench, query: str, message: str
) -> None:
    """I19: every mistake is found when the view is made."""
    name = work.source(KEYED, "a:1")
    with pytest.raises(SqlError, match=message):
        work.view(query.format(s=name))


def test_changes_add_up(work: Workbench) -> None:
    """I13: snapshot and changes together are the view, always."""
    name = work.source(f"{KEYED} ENVELOPE UPSERT", *(f"{key}:0" for key in "abcde"))
    view = work.view(f"SELECT text, count(*) AS n FROM {name} GROUP BY text")
    work.pipeline.wait(view)
    subscription = work.pipeline.subscribe(view)
    counts: dict[str, int] = {}
    for number, key in enumerate("abcab"):
        work.send(name, f"{key}:{number}")
    work.pipeline.wait(view)
    final = dict.fromkeys(map(repr, work.rows(f"SELECT * FROM {view}")), 1)

    def add(change: RowChange) -> None:
        shown = repr(tuple(change.row.values()))
        counts[shown] = counts.get(shown, 0) + change.diff

    timer = threading.Timer(FINAL_SECONDS, subscription.close)
    timer.start()
    for change in subscription:
        add(change)
        if {row: count for row, count in counts.items() if count} == final:
            break
    timer.cancel()
    subscription.close()
    assert {row: count for row, count in counts.items() if count} == final


@pytest.mark.slow
def test_changes_of_joins_are_those_of_the_whole(work: Workbench) -> None:
    """I9, I13: rows come and go on all three sides at once; the view is what its query gives."""
    rng = random.Random(7)
    names = [work.source(f"{KEYED} ENVELOPE UPSERT", "0:0"),
             work.source(f"{KEYED} ENVELOPE UPSERT", "0:0"), work.source(KEYED, "0:0")]
    first, second, third = names
    query = (f"SELECT a.key AS k, b.text AS t, c.text AS u FROM {first} a "
             f"JOIN {second} b ON a.text = b.text JOIN {third} c ON c.key = a.key")
    view = work.view(query)
    work.pipeline.wait(view)
    for _ in range(4):
        for name in names:
            messages = [f"{rng.randrange(4)}:{rng.choice(['', '0', '1', '2'])}" for _ in range(5)]
            if name == third:
                messages = [message for message in messages if not message.endswith(":")]
            work.send(name, *messages)
        work.pipeline.wait(view)

    assert work.rows(f"SELECT * FROM {view}") == work.rows(query)
    assert len(work.rows(query)) > 3


def test_views_of_empty_topics_hold_what_their_queries_give(work: Workbench) -> None:
    """I13: before the first message, and what changes with it."""
    name = work.source(f"{KEYED} ENVELOPE UPSERT")
    rows = work.view(f"SELECT key FROM {name}")
    count = work.view(f"SELECT count(*) AS n FROM {name}")

    assert work.rows(f"SELECT * FROM {rows}") == []
    assert work.rows(f"SELECT * FROM {count}") == [(0,)]
    subscription = work.pipeline.subscribe(count)
    assert changes(subscription, 1) == [(1, "0")]
    work.send(name, "a:1")
    assert changes(subscription, 2) == [(-1, "0"), (1, "1")]
    work.do(f"DROP VIEW {count}")
    with pytest.raises(ViewDropped):
        next(subscription)
