"""Reads that several fetches wait for: their results are held while somebody waits."""

from quipu.runtime.shared_reads import SharedRead


def test_a_result_is_held_while_a_fetch_waits_for_it() -> None:
    """R16, D5: each fetch is called once, and the last one that goes releases the bytes."""
    reads: dict[str, SharedRead[str, int]] = {}
    read = SharedRead(reads, "key")
    called: list[str] = []
    first, second, gone = read.wait(), read.wait(), read.wait()
    first.when_arrived(lambda: called.append("first"))
    gone.when_arrived(lambda: called.append("gone"))
    gone.cancel()
    assert reads["key"] is read, "it runs"
    read.complete([1], None)
    assert called == ["first"]
    second.when_arrived(lambda: called.append("second"))
    assert called == ["first", "second"]
    first.cancel()
    first.cancel()
    assert reads["key"].found == [1]
    second.cancel()
    assert not reads


def test_a_read_that_another_replaced_leaves_it_alone() -> None:
    """R16, D5: and one that nobody waits for is gone once it is done."""
    reads: dict[str, SharedRead[str, int]] = {}
    old = SharedRead(reads, "key")
    waiting = old.wait()
    old.complete([], None)
    new = SharedRead(reads, "key")
    waiting.cancel()
    assert reads == {"key": new}
    new.complete([1], None)
    assert not reads
