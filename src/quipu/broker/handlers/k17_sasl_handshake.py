"""SaslHandshake — API key 17, versions 0-1.

Behaviour
    * no listener authenticates clients by SASL, so there is no mechanism: ILLEGAL_SASL_STATE, which
      clients that are configured for SASL report as such
Versions
    v1  the mechanism's messages would be SaslAuthenticate requests instead of bare bytes
"""

from quipu.broker.serving.context import Broker, Context
from quipu.model.errors import Code
from quipu.wire.messages.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(
    broker: Broker, request: SaslHandshakeRequest, context: Context
) -> SaslHandshakeResponse:
    del broker, request, context
    return SaslHandshakeResponse(error_code=Code.ILLEGAL_SASL_STATE)
