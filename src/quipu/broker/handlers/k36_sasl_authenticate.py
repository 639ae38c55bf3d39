"""SaslAuthenticate — API key 36, versions 0-2.

Behaviour
    * as k17_sasl_handshake: no listener authenticates clients by SASL
Versions
    v1  the lifetime of the session      v2  flexible encoding
"""

from quipu.broker.serving.context import Broker, Context
from quipu.model.errors import Code
from quipu.wire.messages.k36_sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)


def handle(
    broker: Broker, request: SaslAuthenticateRequest, context: Context
) -> SaslAuthenticateResponse:
    del broker, request
    return SaslAuthenticateResponse(
        error_code=Code.ILLEGAL_SASL_STATE,
        error_message=f"listener {context.listener.name} does not authenticate clients by SASL")
