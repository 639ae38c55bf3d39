"""What holds for every test: hypothesis repeats itself, and finds its budget in one place.

The default profile is deterministic: one commit, one result.  `HYPOTHESIS_PROFILE=soak` looks at
fresh examples, and at many more of them; `sim` takes its chance from --hypothesis-seed, and gives
state machines many more runs than a test has time for.
"""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

SIM_EXAMPLES = 1_500
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "default")

# A shell's background job ignores Ctrl-C, and so would every program that a test starts from it.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "default", derandomize=True, deadline=None, print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],  # machines that run tests are busy
)
settings.register_profile(
    "soak", settings.get_profile("default"), derandomize=False, max_examples=2_000,
)
settings.register_profile("sim", settings.get_profile("default"), derandomize=False, database=None)
settings.load_profile(PROFILE)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In a simulation, let state machines run for longer than their tests say."""
    if PROFILE != "sim":
        return
    for item in items:
        machine = getattr(item, "cls", None)
        own = getattr(machine, "settings", None)
        if isinstance(own, settings):
            machine.settings = settings(own, max_examples=SIM_EXAMPLES)
            item.add_marker(pytest.mark.timeout(1800))
