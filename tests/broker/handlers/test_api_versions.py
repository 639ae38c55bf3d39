"""ApiVersions, and the list of handlers that it responds with."""

import inspect
from typing import Any, Final, cast

import pytest

from quipu.broker.handlers import MODULES, SUPPORTED, load
from quipu.broker.handlers.k18_api_versions import handle, unsupported_version_response
from quipu.broker.serving.context import Broker, Context
from quipu.model.errors import Code
from quipu.wire.messages import OWN_KEY_FIRST, REQUESTS, RESPONSES
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


def test_features_have_one_level_each_and_it_is_finalized() -> None:
    """K12: tools show a version of the cluster; clients learn of no feature that is not served, for
    they would change their behaviour, for instance in transactions.
    """
    response = ask(4)
    levels = {each.name: each.max_version_level for each in response.finalized_features}

    assert levels.items() >= {"metadata.version": 29, "kraft.version": 1}.items()
    assert levels.keys().isdisjoint({"transaction.version", "share.version", "streams.version"})
    assert ("group.version" in levels) == (68 in SUPPORTED)
    assert [(each.name, each.min_version, each.max_version)
            for each in response.supported_features] == [
        (name, level, level) for name, level in levels.items()]
    assert all(each.min_version_level == each.max_version_level
               for each in response.finalized_features)
    assert (response.finalized_features_epoch, response.zk_migration_ready) == (0, False)


# What a Kafka 4.2 of one node, broker and controller, with default settings responds with.
KAFKA: Final = {
    0: (0, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 8: (2, 10), 9: (1, 10), 10: (0, 6),
    11: (0, 9), 12: (0, 4), 13: (0, 5), 14: (0, 5), 15: (0, 6), 16: (0, 5), 17: (0, 1),
    18: (0, 4), 19: (2, 7), 20: (1, 6), 21: (0, 2), 22: (0, 5), 23: (2, 4), 24: (0, 5),
    25: (0, 4), 26: (0, 5), 27: (1, 2), 28: (0, 5), 29: (1, 3), 30: (1, 3), 31: (1, 3),
    32: (1, 4), 33: (0, 2), 34: (1, 2), 35: (1, 4), 36: (0, 2), 37: (0, 3), 38: (1, 3),
    39: (1, 2), 40: (1, 2), 41: (1, 3), 42: (0, 2), 43: (0, 2), 44: (0, 1), 45: (0, 1),
    46: (0, 0), 47: (0, 0), 48: (0, 1), 49: (0, 1), 50: (0, 0), 51: (0, 0), 55: (0, 2),
    57: (0, 2), 60: (0, 2), 61: (0, 0), 64: (0, 0), 65: (0, 0), 66: (0, 2), 68: (0, 1),
    69: (0, 1), 74: (0, 1), 75: (0, 0), 76: (1, 1), 77: (1, 1), 78: (1, 2), 79: (1, 2),
    80: (0, 1), 81: (0, 0), 83: (0, 0), 84: (0, 0), 85: (0, 1), 86: (0, 0), 87: (0, 1),
    88: (0, 0), 89: (0, 0), 90: (0, 1), 91: (0, 0), 92: (0, 0)}
NOT_SERVED: Final = {
    24, 25, 26, 27, 28,  # transactions
    68, 69,  # groups of the consumer protocol
    76, 78, 79, 83, 84, 85, 86, 87,  # share groups: their members, and their state
    88,  # streams groups: their members
}


@pytest.mark.parametrize("key", sorted(KAFKA))
def test_versions_are_those_of_kafka(key: int) -> None:
    """K12: of each API that both serve; and what is not served is one of the features that are not
    there.
    """
    if key not in SUPPORTED:
        assert key in NOT_SERVED
    elif key != 22:  # InitProducerId
        assert SUPPORTED[key] == KAFKA[key]


def test_no_api_of_kafka_is_served_that_kafka_does_not_serve() -> None:
    """K12: GetTelemetrySubscriptions and PushTelemetry need a receiver of metrics, on both."""
    assert {key for key in SUPPORTED if key < OWN_KEY_FIRST} <= KAFKA.keys()


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
