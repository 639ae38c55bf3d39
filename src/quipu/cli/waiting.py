"""Tells a user what a command waits for: on standard error, sparingly, and when it goes on.

`produce` and `consume` leave retries to librdkafka, which is silent for as long as they last.  What
is wrong is asked of the cluster itself, on a connection of its own, only once nothing has happened
for SILENCE_SECONDS.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Final

from quipu.cli.cluster import NAMES_MAX, connect, offline_text
from quipu.cli.errors import CommandFailed
from quipu.cli.output import note, printable
from quipu.client.admin.quorum import describe_quorum
from quipu.client.admin.topics import PartitionDescription, describe_topics, topic_settings
from quipu.client.cluster import Cluster
from quipu.client.coordinator import coordinator
from quipu.client.errors import ClientError, ConnectionFailed
from quipu.model.ids import TopicPartition

SILENCE_SECONDS: Final = 3.0
REPEAT_SECONDS_MAX: Final = 60.0  # pauses between two messages double up to this
LOOK_SECONDS: Final = 0.2
CALL_SECONDS: Final = 2.0  # for which a question about the reason is retried

Why = Callable[[], str | None]  # what is wrong now; None: nothing


class WaitReporter:
    """Counts how long nothing has happened, and tells why."""

    def __init__(
        self, why: Why, *, clock: Callable[[], float] = time.monotonic,
        tell: Callable[[str], None] = note,
    ) -> None:
        self._why, self._clock, self._tell = why, clock, tell
        self._since = self._next = 0.0
        self._pause = SILENCE_SECONDS
        self._has_told = False
        self.progressed()

    def progressed(self) -> None:
        """Note that something has happened, or that there is nothing to wait for."""
        now = self._clock()
        if self._has_told:
            self._tell(f"going on after {now - self._since:.0f} s")
        self._has_told = False
        self._since, self._next, self._pause = now, now + SILENCE_SECONDS, SILENCE_SECONDS

    def waited(self) -> None:
        """Note that nothing has happened; tells why, if it is time."""
        if self._clock() < self._next:
            return
        why = self._why()
        now = self._clock()
        if why is not None:
            self._tell(f"waiting for {now - self._since:.0f} s: {printable(why)}")
            self._has_told = True
            self._pause = min(2 * self._pause, REPEAT_SECONDS_MAX)
        elif self._has_told:
            self.progressed()
        self._next = now + self._pause


@contextmanager
def watching(look: Callable[[], None]) -> Iterator[None]:
    """Call `look` every LOOK_SECONDS in a thread while the block runs, which may wait for input."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(LOOK_SECONDS):
            look()

    thread = threading.Thread(target=watch, name="quipu-waiting", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(LOOK_SECONDS)  # not for a question that is under way


def why_not_written(bootstrap: str, topic: str, wanted: Collection[int] = ()) -> str:
    """Why records of a topic are not acknowledged: all partitions, or the `wanted` ones."""
    def look(cluster: Cluster) -> str:
        parts = _partitions(cluster, topic, wanted)
        return (_why_not_led(cluster, topic, parts) or _why_too_few(cluster, topic, parts)
                or _why_no_controller(cluster)
                or "the brokers respond, but have acknowledged nothing yet")

    return _asked(bootstrap, look) or "the brokers respond, but have acknowledged nothing yet"


def why_not_read(
    bootstrap: str, topic: str, wanted: Collection[int] = (), group: str | None = None
) -> str | None:
    """Why no records of a topic arrive; None if nothing is wrong: there may be no more."""
    def look(cluster: Cluster) -> str | None:
        if group is not None:
            try:
                coordinator(cluster, group)
            except ClientError as error:
                return f"the coordinator of group {group} is not available ({error})"
        return _why_not_led(cluster, topic, _partitions(cluster, topic, wanted))

    return _asked(bootstrap, look)


def _asked(bootstrap: str, look: Callable[[Cluster], str | None]) -> str | None:
    try:
        with connect(bootstrap, call_seconds=CALL_SECONDS) as cluster:
            return look(cluster)
    except (CommandFailed, ClientError) as error:
        return str(error)


def _partitions(
    cluster: Cluster, topic: str, wanted: Collection[int]
) -> list[PartitionDescription]:
    found = describe_topics(cluster, [topic]).get(topic)
    if found is None:
        raise CommandFailed(f"there is no topic {topic} any more")
    return [each for each in found.partitions if not wanted or each.partition in wanted]


def _why_not_led(
    cluster: Cluster, topic: str, parts: Collection[PartitionDescription]
) -> str | None:
    offline = [TopicPartition(topic, each.partition) for each in parts if each.leader is None]
    if offline:
        return offline_text(offline)
    brokers = cluster.brokers()
    for leader in sorted({each.leader for each in parts if each.leader is not None}):
        names = _names(topic, [each for each in parts if each.leader == leader])
        if leader not in brokers:
            return f"node {leader}, the leader of {names}, is going away"
        try:
            cluster.connection(leader)
        except ConnectionFailed as error:
            return (f"node {leader} at {brokers[leader]}, the leader of {names}, cannot be reached "
                    f"({error.why})")
    return None


def _why_too_few(
    cluster: Cluster, topic: str, parts: Collection[PartitionDescription]
) -> str | None:
    setting = topic_settings(cluster, topic).get("min.insync.replicas")
    least = int(setting.value or 1) if setting is not None else 1
    short = [each for each in parts if len(each.in_sync) < min(least, len(each.replicas))]
    if not short:
        return None
    first = short[0]
    return (f"too few replicas of {_names(topic, short)} are in sync: {len(first.in_sync)} of "
            f"{len(first.replicas)}, and min.insync.replicas needs {least}; see `quipu chain "
            "describe`")


def _why_no_controller(cluster: Cluster) -> str | None:
    try:
        describe_quorum(cluster)
    except ClientError as error:
        return str(error)
    return None


def _names(topic: str, parts: Collection[PartitionDescription]) -> str:
    names = [str(TopicPartition(topic, each.partition)) for each in parts]
    more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    return ", ".join(names[:NAMES_MAX]) + more
