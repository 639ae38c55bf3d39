"""ApiVersions, and the list of handlers that it responds with."""

import inspect
from typing import Any, cast

import pytest

from quipu.broker.handlers import MODULES, SUPPORTED, load
from quipu.broker.handlers.k18_api_versions import handle, unsupported_version_response
from quipu.broker.serving.context import Broker, Context
from quipu.model.errors import Code
from quipu.wire.messages import REQUESTS, RESPONSES
from quipu.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.wire.message_oracles import kafka_python_decode

BROKER = cast("Broker", None)  # the response does not depend on it
WORKING_ON_BYTES = {0, 1}  # Produce and Fetch have entrances of their own


def ask(version: int, name: str = "apache-kafka-java", software: str = "4.2.0") -> Any:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=software)
    context = Context(version, 1, "client", "127.0.0.1")
    return handle(BROKER, request, context)


@pytest.mark.parametrize("version", ApiVersionsRequest.VERSIONS)
def test_what_is_advertised_is_what_has_a_handler(version: int) -> None:
    """K12: broker.handlers.H1, broker.handlers.H2; every API with a handler, no other, in exactly
    the versions that are defined.
    """
    response = ApiVersionsResponse.decode(ask(version).encode(version), version)
    advertised = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}

    assert response.error_code == Code.NONE
    assert advertised == SUPPORTED
    assert advertised.keys() == MODULES.keys()
    for key, (first, last) in advertised.items():
        versions = REQUESTS[key].VERSIONS
        assert (first, last) == ((0, 13) if key == 0 else (versions[0], versions[-1]))


@pytest.mark.parametrize("key", sorted(MODULES.keys() - WORKING_ON_BYTES))
def test_every_handler_takes_what_the_server_gives(key: int) -> None:
    """K12: a module that is advertised has a function that responds with the right message."""
    handler = load(key)
    hints = inspect.get_annotations(handler, eval_str=True)

    assert list(inspect.signature(handler).parameters) == ["broker", "request", "context"]
    assert (hints["request"], hints["return"]) == (REQUESTS[key], RESPONSES[key])


def test_no_features_are_finalized() -> None:
    """K12: clients would change their behaviour, for instance in transactions."""
    response = ask(4)

    assert (response.supported_features, response.finalized_features) == ([], [])
    assert (response.finalized_features_epoch, response.zk_migration_ready) == (-1, False)


def test_an_unknown_version_is_answered_in_version_0_with_the_list() -> None:
    """K12: a client of the future asks again in a version of the response (KIP-511)."""
    data = unsupported_version_response().encode(0)
    theirs = kafka_python_decode(data, ApiVersionsResponse, 0)
    response = ApiVersionsResponse.decode(data, 0)

    assert theirs.error_code == Code.UNSUPPORTED_VERSION
    assert (18, 0, 4) in [(a.api_key, a.min_version, a.max_version) for a in response.api_keys]


@pytest.mark.parametrize("name", ["", "-a", "a-", ".a", "a.", "a b", "a\n", "ä", "a/b"])
def test_a_client_with_an_odd_name_is_refused_since_v3(name: str) -> None:
    """K8, K12: the name goes into metrics and logs, so it may only be made of harmless signs."""
    assert ask(3, name=name).error_code == Code.INVALID_REQUEST
    assert ask(3, software=name).error_code == Code.INVALID_REQUEST
    assert ask(3, name=name).api_keys == []
    assert ask(2, name=name).error_code == Code.NONE


@pytest.mark.parametrize("name", ["a", "7", "librdkafka", "a-b.c", "a--b"])
def test_an_ordinary_name_is_welcome(name: str) -> None:
    """K12: what real clients call themselves."""
    assert ask(4, name=name, software=name).error_code == Code.NONE
