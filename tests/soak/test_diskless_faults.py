"""The faults of `diskless_faults`, each kind that matters once."""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.harness.diskless_site import DisklessSite
from tests.harness.s3_server import S3Server
from tests.harness.writers import Writer, await_progress
from tests.soak.diskless_faults import Faults, suffer

KINDS = ("kill", "lose", "database", "refuse", "kill", "hold", "slow")
SECONDS_MAX = 1.5  # of one fault
SEED = 14


@pytest.mark.timeout(600)
def test_acknowledged_records_survive_faults_exactly_once(
    tmp_path: Path, s3_server: S3Server
) -> None:
    """D33, D3: nodes are killed, the database ends, the store refuses, is slow, and does not say
    what it has done.  Every record of producers with sequences is there once and in order, also
    where three of them write to one partition through three nodes; of the others none is lost.
    """
    with DisklessSite(tmp_path, s3_server) as site:

        def strikes(faults: Faults, writers: Sequence[Writer]) -> None:
            for kind in KINDS:
                print(faults.strike(kind, seconds_max=SECONDS_MAX))
                await_progress(writers, site.cluster.logs)

        assert suffer(site, random.Random(SEED), strikes) == []
