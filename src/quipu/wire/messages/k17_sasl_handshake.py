"""SaslHandshake — API key 17, versions 0-1.

Behaviour
    * names the mechanism by which a client authenticates; the response lists those supported
Versions
    v1  the mechanism's messages are SaslAuthenticate requests instead of bare bytes
"""

from quipu.wire.fields import STRING, array, int16, string
from quipu.wire.schema import Request, Response


class SaslHandshakeRequest(Request, key=17, versions="0-1"):
    """Start to authenticate by this mechanism."""

    mechanism: str = string()


class SaslHandshakeResponse(Response, key=17, versions="0-1"):
    """The supported mechanisms."""

    error_code: int = int16()
    mechanisms: list[str] = array(STRING)
