"""Segments as objects (tests/remote/segments), on servers of other makers, and with a network that
fails.
"""

import pytest

from tests.interop.inherit import inherited
from tests.remote.segments import test_faults, test_stores

pytestmark = pytest.mark.interop
globals().update(inherited(test_stores, "store_url"))
globals().update(inherited(test_faults, "s3_server"))
