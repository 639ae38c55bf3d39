"""The progress of views: as rows of a table, as lines of a log, and in one line."""

from collections.abc import Sequence
from typing import Final

from quipu.cli.output import printable
from quipu.cli.sql.engine import ViewProgress
from quipu.cli.sql.runner import EngineRunner

COLUMNS: Final = (
    "view", "source", "state", "messages", "messages/s", "lag", "dead letters", "error")


def row(progress: ViewProgress) -> dict[str, object]:
    """The progress of a view as a row of a table."""
    return {
        "view": progress.view, "source": progress.source, "state": progress.state,
        "messages": progress.messages, "messages/s": round(progress.rate), "lag": progress.lag,
        "dead letters": progress.dead_letters, "error": progress.error,
    }


def line(progress: ViewProgress) -> str:
    """The progress of a view as a line of a log."""
    lag = "unknown" if progress.lag is None else f"{progress.lag:,}"
    dead = f", {progress.dead_letters:,} dead letters" if progress.dead_letters else ""
    error = f", {printable(progress.error)}" if progress.error else ""
    return (f"{progress.view} from {progress.source}: {progress.state}, "
            f"{progress.messages:,} messages, {progress.rate:,.0f}/s, lag {lag}{dead}{error}\n")


def summary(progress: Sequence[ViewProgress]) -> str:
    """The progress of all views in one line, for a status line."""
    if not progress:
        return "there are no views or sinks yet"
    rate = sum(each.rate for each in progress)
    lags = [each.lag for each in progress]
    lag = "unknown" if None in lags else f"{sum(each or 0 for each in lags):,}"
    failing = dict.fromkeys(each.view for each in progress if each.error)
    failures = f"; failing: {', '.join(failing)}" if failing else ""
    views = dict.fromkeys(each.view for each in progress)
    return f"{', '.join(views)}: {rate:,.0f} messages/s, lag {lag}{failures}"


def wait_until_current(runner: EngineRunner, seconds_max: float) -> bool:
    """Wait until every view has processed all present messages; False at a time-out."""
    engine = runner.engine
    return runner.wait_for(
        lambda: engine.catch_up(seconds_max), lambda: summary(engine.progress()))
