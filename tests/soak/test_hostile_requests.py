"""A few thousand of the soak's hostile requests: what makes and sends them goes on to work."""

import random
from pathlib import Path
from uuid import UUID

from quipu.broker.handlers import SUPPORTED
from quipu.wire.frame import decode_request, encode_request
from quipu.wire.messages import REQUESTS
from tests.soak.hostile_requests import run
from tests.soak.hostile_values import OWN_ONLY, VICTIM_GROUP, VICTIM_TOPIC, Generator, Known

REQUESTS_MADE = 12_000
VICTIM_ID = UUID(int=77)


def test_every_api_and_version_is_made_and_none_harms_the_bystander_by_right() -> None:
    """K8: what is made is well-formed; requests that destroy name only the attacker's own."""
    generator = Generator(random.Random(1), Known({VICTIM_TOPIC: VICTIM_ID}, "cluster"))
    seen = set()
    for number in range(REQUESTS_MADE):
        request, version = generator.request(waits=number % 2 == 0)
        frame = encode_request(request, version, correlation_id=number)
        header, decoded = decode_request(memoryview(frame)[4:])
        assert (header.api_key, header.api_version) == (request.KEY, version)
        assert type(decoded) is type(request)
        if request.KEY in OWN_ONLY:
            text = repr(decoded)
            assert f"'{VICTIM_TOPIC}'" not in text
            assert f"'{VICTIM_GROUP}'" not in text
            assert str(VICTIM_ID) not in text
        seen.add((request.KEY, version))
    assert seen == {(key, version) for key in SUPPORTED for version in REQUESTS[key].VERSIONS}


def test_a_node_outlives_some_thousand_hostile_requests(tmp_path: Path) -> None:
    """K8: all are served or refused, a bystander is served, and a restart finds what it wrote."""
    soak = run(3_000, 1, 12.0, phase=1_500, directory=tmp_path, workers=1)

    assert soak.findings == []
    assert soak.requests > 500  # on a machine that is very busy
    assert soak.victim.written
    assert soak.total.decoded.total() > 100
