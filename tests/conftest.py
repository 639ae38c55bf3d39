"""What holds for every test: hypothesis repeats itself, and finds its budget in one place.

The default profile is deterministic: one commit, one result.  `HYPOTHESIS_PROFILE=soak` looks at
fresh examples, and at many more of them; `sim` takes its chance from --hypothesis-seed.
"""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "default", derandomize=True, deadline=None, print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],  # machines that run tests are busy
)
settings.register_profile(
    "soak", settings.get_profile("default"), derandomize=False, max_examples=2_000,
)
settings.register_profile("sim", settings.get_profile("default"), derandomize=False, database=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
