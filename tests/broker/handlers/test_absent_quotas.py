"""Client quotas, of which there are none, and features, of which none can be changed."""


from types import ModuleType
from typing import Any

import pytest

from quipu.broker.handlers import (
    k48_describe_client_quotas,
    k49_alter_client_quotas,
    k57_update_features,
)
from quipu.model.errors import Code
from quipu.wire.messages.k48_describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from quipu.wire.messages.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from quipu.wire.messages.k57_update_features import FeatureUpdateKey, UpdateFeaturesRequest
from quipu.wire.schema import Request
from tests.broker.clusters import a_broker, ask, versions
from tests.looped import looped

EXACT, DEFAULT, ANY = range(3)

async def asked(handler: ModuleType, request: Request, version: int | None = None) -> Any:
    last = type(request).VERSIONS[-1]
    return await ask(await a_broker(), handler, request, last if version is None else version)


def part(kind: str, match_type: int, match: str | None = None) -> ComponentData:
    return ComponentData(entity_type=kind, match_type=match_type, match=match)


@pytest.mark.parametrize(("components", "code"), [
    ([], Code.NONE),
    ([part("user", ANY)], Code.NONE),
    ([part("user", EXACT, "a"), part("client-id", DEFAULT)], Code.NONE),
    ([part("ip", ANY)], Code.NONE),
    ([part("", ANY)], Code.INVALID_REQUEST),
    ([part("group", ANY)], Code.UNSUPPORTED_VERSION),
    ([part("user", 9)], Code.INVALID_REQUEST),
    ([part("user", EXACT)], Code.INVALID_REQUEST),
    ([part("user", ANY, "a")], Code.INVALID_REQUEST),
    ([part("user", ANY), part("user", DEFAULT)], Code.INVALID_REQUEST),
    ([part("user", ANY), part("ip", ANY)], Code.INVALID_REQUEST),
])
@looped
async def test_there_are_no_quotas(components: list[ComponentData], code: Code) -> None:
    """K12: none match, whatever is asked for; filters are checked as Kafka does."""
    response = await asked(
        k48_describe_client_quotas, DescribeClientQuotasRequest(components=components))

    assert response.error_code == code
    assert response.entries == ([] if code is Code.NONE else None)


def quota(*parts: tuple[str, str | None], remove: bool = False, count: int = 1) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in parts],
        ops=[OpData(key="producer_byte_rate", value=1.0, remove=remove)] * count)


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize(("entries", "whys"), [
    ([quota(("user", "a"))], ["not supported"]),
    ([quota(("user", None), remove=True)], [None]),
    ([quota(("user", "a"), remove=True), quota(("user", "b"))], [None, "not supported"]),
    ([quota(("user", "a"), remove=True)] * 2, ["once"]),
    ([quota(("user", "a"), remove=True, count=2)], ["once"]),
    ([quota()], ["empty"]),
    ([quota(("user", ""))], ["empty"]),
    ([quota(("group", "a"))], ["types"]),
    ([quota(("user", "a"), ("ip", "::1"))], ["combined"]),
])
@looped
async def test_quotas_cannot_be_set(
    entries: list[EntryData], whys: list[str | None], *, validate_only: bool
) -> None:
    """K12: a clear error, also if the request is only validated; to remove what is not there is
    none.
    """
    response = await asked(k49_alter_client_quotas, AlterClientQuotasRequest(
        entries=entries, validate_only=validate_only))

    assert len(response.entries) == len(whys)
    for entry, why in zip(response.entries, whys, strict=True):
        assert entry.error_code == (Code.NONE if why is None else Code.INVALID_REQUEST)
        assert entry.error_message is None if why is None else why in entry.error_message


@pytest.mark.parametrize("version", versions(UpdateFeaturesRequest))
@pytest.mark.parametrize(("updates", "code"), [
    ([], Code.NONE),
    ([("metadata.version", 29)], Code.NONE),
    ([("metadata.version", 28)], Code.INVALID_UPDATE_VERSION),
    ([("metadata.version", 30)], Code.INVALID_UPDATE_VERSION),
    ([("kraft.version", 1), ("transaction.version", 2)], Code.INVALID_UPDATE_VERSION),
])
@looped
async def test_features_keep_their_level(
    updates: list[tuple[str, int]], code: Code, version: int
) -> None:
    """K12: asking for the level that a feature has is no error; all are refused with one."""
    response = await asked(k57_update_features, UpdateFeaturesRequest(feature_updates=[
        FeatureUpdateKey(feature=name, max_version_level=level) for name, level in updates]),
        version)

    assert response.error_code == code
    assert [(each.feature, each.error_code) for each in response.results] == (
        [(name, Code.NONE) for name, _ in updates] if code is Code.NONE and version < 2 else [])
    if code is not Code.NONE:
        assert updates[-1][0] in response.error_message
