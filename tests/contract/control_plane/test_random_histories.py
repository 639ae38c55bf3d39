"""Random histories: each control plane returns what the one in memory returns."""

import asyncio
import os

from hypothesis import HealthCheck, given, settings

from quipu.diskless.control_plane.memory import MemoryControlPlane
from tests.contract.control_plane.histories import Step, Twins, steps
from tests.contract.control_plane.planes import PlaneUnderTest, opened

EXAMPLES = int(os.environ.get("QUIPU_HISTORIES", "60"))


def test_any_history_gives_what_the_model_gives(under_test: PlaneUnderTest) -> None:
    """D2, D3: diskless.C1 to diskless.C8, over wrapped sequences, epochs, retention, rewriting."""
    with asyncio.Runner() as runner:
        entered = opened(under_test)
        plane = runner.run(entered.__aenter__())

        @settings(max_examples=EXAMPLES, deadline=None,
                  suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
        @given(steps)
        def histories(history: list[Step]) -> None:
            runner.run(run(history))

        async def run(history: list[Step]) -> None:
            twins = Twins(plane, MemoryControlPlane())
            await twins.begin()
            for step in history:
                await twins.run(step)
            await twins.check()

        try:
            histories()
        finally:
            runner.run(entered.__aexit__(None, None, None))
