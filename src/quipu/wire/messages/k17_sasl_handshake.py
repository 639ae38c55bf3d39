"""SaslHandshake — API key 17, versions 0-1.

Behaviour
    * names the mechanism by which a client wants to prove who it is; the answer lists those served
Versions
    v1  what follows goes in SaslAuthenticate requests instead of bare bytes
"""

from quipu.wire.fields import STRING, array, int16, string
from quipu.wire.schema import Request, Response


class SaslHandshakeRequest(Request, key=17, versions="0-1"):
    """May I use this mechanism?"""

    mechanism: str = string()


class SaslHandshakeResponse(Response, key=17, versions="0-1"):
    """The mechanisms that are served."""

    error_code: int = int16()
    mechanisms: list[str] = array(STRING)
