"""DescribeAcls — API key 29, versions 1-3.

Behaviour
    * there are no access rules: SECURITY_DISABLED, as by a Kafka without an authorizer
Versions
    v2  flexible encoding      v3  users as resources
"""

from typing import Final

from quipu.broker.serving.context import Broker, Context
from quipu.model.errors import Code
from quipu.wire.messages.k29_describe_acls import DescribeAclsRequest, DescribeAclsResponse

NO_AUTHORIZER: Final = (
    "there is no authorizer: access rules are not supported, and every client that can connect may "
    "do everything")


def handle(broker: Broker, request: DescribeAclsRequest, context: Context) -> DescribeAclsResponse:
    del broker, request, context
    return DescribeAclsResponse(error_code=Code.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
