"""How far views have come, as rows of a table, as lines, and in one line."""

from collections.abc import Sequence
from typing import Final

from quipu.cli.output import printable
from quipu.cli.sql_answers import Progress
from quipu.cli.sql_attending import Attendant

COLUMNS: Final = (
    "view", "source", "state", "messages", "messages/s", "lag", "dead letters", "error")


def row(progress: Progress) -> dict[str, object]:
    """One line of the table."""
    return {
        "view": progress.view, "source": progress.source, "state": progress.state,
        "messages": progress.messages, "messages/s": round(progress.rate), "lag": progress.lag,
        "dead letters": progress.dead_letters, "error": progress.error,
    }


def line(progress: Progress) -> str:
    """The same for a log."""
    lag = "unknown" if progress.lag is None else f"{progress.lag:,}"
    dead = f", {progress.dead_letters:,} dead letters" if progress.dead_letters else ""
    error = f", {printable(progress.error)}" if progress.error else ""
    return (f"{progress.view} from {progress.source}: {progress.state}, "
            f"{progress.messages:,} messages, {progress.rate:,.0f}/s, lag {lag}{dead}{error}\n")


def summary(progress: Sequence[Progress]) -> str:
    """All of it in one line."""
    if not progress:
        return "nothing is kept up to date yet"
    rate = sum(each.rate for each in progress)
    lags = [each.lag for each in progress]
    lag = "unknown" if None in lags else f"{sum(each or 0 for each in lags):,}"
    failing = dict.fromkeys(each.view for each in progress if each.error)
    told = f"; failing: {', '.join(failing)}" if failing else ""
    views = dict.fromkeys(each.view for each in progress)
    return f"{', '.join(views)}: {rate:,.0f} messages/s, lag {lag}{told}"


def wait_until_current(attendant: Attendant, seconds_max: float) -> bool:
    """Wait, with a line of progress, until everything has what there is now."""
    engine = attendant.engine
    return attendant.wait_for(
        lambda: engine.catch_up(seconds_max), lambda: summary(engine.progress()))
