"""P10: commits of 10 batches by a control plane in PostgreSQL, as a ratio to bare transactions.

Clients and server share this machine.  In turns, for one writer and for several; what is shown is
the median of the ratios of neighbouring rounds.
"""

from typing import Final

from quipu.bench.diskless.bare_commits import BATCHES, run_commits
from quipu.bench.diskless.postgres_server import temporary_postgres
from quipu.bench.lines import Line, Series, median_ratio
from quipu.bench.processes import in_child
from quipu.bench.report import Ratio
from quipu.bench.target import Target

P10_AIM: Final = 0.7
ROUNDS: Final = 5
SECONDS: Final = 1.5  # of a round
SEVERAL: Final = 4


def p10_one(_target: Target, _directory: str) -> Line | None:
    """One writer; None if PostgreSQL is not installed."""
    return _measure(1)


def p10_several(_target: Target, _directory: str) -> Line | None:
    """Several writers at once; None if PostgreSQL is not installed."""
    return _measure(SEVERAL)


def _measure(writers: int) -> Line | None:
    with temporary_postgres() as url:
        if url is None:
            return None
        rounds = in_child(run_commits, url, writers, ROUNDS, SECONDS)
    commits = Series([commit for commit, _ in rounds])
    bare = Series([transaction for _, transaction in rounds])
    name = f"commits of {BATCHES} batches, {writers} writer{'s' if writers > 1 else ''}"
    return Line(name, commits, bare, [
        Ratio(number="P10", about=f"{name} / bare transactions of the same rows", aim=P10_AIM,
              value=median_ratio(commits, bare))])
