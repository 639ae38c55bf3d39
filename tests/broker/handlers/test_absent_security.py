"""ACLs, SASL, SCRAM and delegation tokens, of which there are none, as in a Kafka without them."""


from types import ModuleType
from typing import Any

import pytest

from quipu.broker.handlers import (
    k17_sasl_handshake,
    k29_describe_acls,
    k30_create_acls,
    k31_delete_acls,
    k36_sasl_authenticate,
    k38_create_delegation_token,
    k39_renew_delegation_token,
    k40_expire_delegation_token,
    k41_describe_delegation_token,
    k50_describe_user_scram_credentials,
    k51_alter_user_scram_credentials,
)
from quipu.broker.serving.context import Context
from quipu.model.errors import Code
from quipu.model.principals import USER, Principal
from quipu.wire.messages.k17_sasl_handshake import SaslHandshakeRequest
from quipu.wire.messages.k29_describe_acls import DescribeAclsRequest
from quipu.wire.messages.k30_create_acls import AclCreation, CreateAclsRequest
from quipu.wire.messages.k31_delete_acls import DeleteAclsFilter, DeleteAclsRequest
from quipu.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest
from quipu.wire.messages.k38_create_delegation_token import CreateDelegationTokenRequest
from quipu.wire.messages.k39_renew_delegation_token import RenewDelegationTokenRequest
from quipu.wire.messages.k40_expire_delegation_token import ExpireDelegationTokenRequest
from quipu.wire.messages.k41_describe_delegation_token import DescribeDelegationTokenRequest
from quipu.wire.messages.k50_describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from quipu.wire.messages.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from quipu.wire.schema import Request
from tests.broker.clusters import a_broker, ask, versions
from tests.looped import looped


async def asked(handler: ModuleType, request: Request, version: int | None = None) -> Any:
    last = type(request).VERSIONS[-1]
    return await ask(await a_broker(), handler, request, last if version is None else version)


@pytest.mark.parametrize("version", versions(DescribeAclsRequest))
@looped
async def test_there_are_no_access_rules(version: int) -> None:
    """K12: SECURITY_DISABLED, with a result for each of those that were to be added or removed, in
    their order and also if they are equal.
    """
    described = await asked(k29_describe_acls, DescribeAclsRequest(), version)
    created = await asked(
        k30_create_acls, CreateAclsRequest(creations=[AclCreation(), AclCreation()]), version)
    deleted = await asked(
        k31_delete_acls, DeleteAclsRequest(filters=[DeleteAclsFilter()] * 3), version)

    assert described.error_code == Code.SECURITY_DISABLED
    assert "authorizer" in described.error_message
    assert [each.error_code for each in created.results] == [Code.SECURITY_DISABLED] * 2
    assert [each.error_code for each in deleted.filter_results] == [Code.SECURITY_DISABLED] * 3


@looped
async def test_no_listener_authenticates_by_sasl() -> None:
    """K12: a client that is configured for SASL learns that the listener is not."""
    handshake = await asked(k17_sasl_handshake, SaslHandshakeRequest(mechanism="PLAIN"))
    authenticated = await asked(k36_sasl_authenticate, SaslAuthenticateRequest(auth_bytes=b"x"))

    assert (handshake.error_code, handshake.mechanisms) == (Code.ILLEGAL_SASL_STATE, [])
    assert authenticated.error_code == Code.ILLEGAL_SASL_STATE
    assert "PLAINTEXT" in authenticated.error_message


@looped
async def test_there_are_no_delegation_tokens() -> None:
    """K12: who has not authenticated may not ask for one; who has learns that there are none."""
    for handler, request in (
            (k38_create_delegation_token, CreateDelegationTokenRequest(max_lifetime=-1)),
            (k39_renew_delegation_token, RenewDelegationTokenRequest(hmac=b"x")),
            (k40_expire_delegation_token, ExpireDelegationTokenRequest(hmac=b"x")),
            (k41_describe_delegation_token, DescribeDelegationTokenRequest(owners=None))):
        response = await asked(handler, request)
        assert response.error_code == Code.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED

    context = Context(3, 1, "client", "::1", principal=Principal(USER, "ann"))
    created: Any = k38_create_delegation_token.handle(
        None, CreateDelegationTokenRequest(), context)  # type: ignore[arg-type]  # it is not used
    assert created.error_code == Code.DELEGATION_TOKEN_AUTH_DISABLED
    assert (created.principal_type, created.principal_name) == (USER, "ann")
    assert (created.issue_timestamp, created.expiry_timestamp, created.max_timestamp) == (-1,) * 3


@pytest.mark.parametrize("users", [None, [], ["a", "a", "b"]])
@looped
async def test_no_user_has_scram_credentials(users: list[str] | None) -> None:
    """K12: the list of all is empty, which tools read before they alter one."""
    named = None if users is None else [UserName(name=user) for user in users]
    response = await asked(k50_describe_user_scram_credentials,
                           DescribeUserScramCredentialsRequest(users=named))

    assert response.error_code == Code.NONE
    assert [(each.user, each.error_code) for each in response.results] == (
        [("a", Code.DUPLICATE_RESOURCE), ("b", Code.RESOURCE_NOT_FOUND)] if users else [])


@looped
async def test_scram_credentials_cannot_be_altered() -> None:
    """K12: per user, in their order; setting one says that SCRAM is not supported."""
    response = await asked(k51_alter_user_scram_credentials, AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name=name, mechanism=mechanism)
                   for name, mechanism in (("a", 1), ("", 1), ("b", 9), ("c", 1))],
        upsertions=[ScramCredentialUpsertion(name=name, mechanism=1) for name in ("c", "d")]))

    assert [(each.user, each.error_code) for each in response.results] == [
        ("a", Code.RESOURCE_NOT_FOUND), ("", Code.UNACCEPTABLE_CREDENTIAL),
        ("b", Code.UNSUPPORTED_SASL_MECHANISM), ("c", Code.DUPLICATE_RESOURCE),
        ("d", Code.INVALID_REQUEST)]
    assert "not supported" in response.results[-1].error_message
