"""SASL authentication of the client: PLAIN, and SCRAM, which does not send the password.

A mechanism is a generator: it yields each message of the client and is sent the broker's response,
so it does not depend on connections.  `authenticate` runs it over an `exchange` of bytes.

    PLAIN     [authorization] NUL name NUL password
    SCRAM     n,,n=name,r=nonce       ->      <-  r=nonce+theirs,s=salt,i=iterations
              c=biws,r=...,p=proof    ->      <-  v=signature: the broker knows the password too
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Callable, Generator
from typing import Final

from quipu.client.errors import NotAuthenticated
from quipu.client.settings import ClientSettings

ITERATIONS_MAX: Final = 1_000_000  # bounds the CPU time that a broker can make a client spend
ITERATIONS_MIN: Final = 4_096  # fewer make the password cheap to guess (RFC 7677)
MESSAGE_SIZE_MAX: Final = 16_384
_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

Conversation = Generator[bytes, bytes, None]


def conversation(settings: ClientSettings) -> Conversation:
    """The messages of this client, by its sasl.mechanism."""
    assert settings.sasl_username is not None, "settings are checked"
    assert settings.sasl_password is not None, "settings are checked"
    if settings.sasl_mechanism == "PLAIN":
        return plain(settings.sasl_username, settings.sasl_password)
    return scram(
        _HASHES[settings.sasl_mechanism], settings.sasl_username, settings.sasl_password)


def authenticate(messages: Conversation, exchange: Callable[[bytes], bytes]) -> None:
    """Exchange messages until both sides accept; raises `NotAuthenticated` if one does not."""
    try:
        message = next(messages)
        while True:
            response = exchange(message)
            if len(response) > MESSAGE_SIZE_MAX:
                raise NotAuthenticated(f"the broker's SASL message has {len(response)} bytes")
            message = messages.send(response)
    except StopIteration:
        return


def plain(name: str, password: str) -> Conversation:
    yield b"\0".join((b"", name.encode(), password.encode()))


def scram(
    algorithm: str, name: str, password: str, *, nonce: str | None = None
) -> Conversation:
    """RFC 5802, without channel binding; `nonce` is for tests."""
    own = secrets.token_urlsafe(24) if nonce is None else nonce
    bare = f"n={name.replace('=', '=3D').replace(',', '=2C')},r={own}"
    first = yield f"n,,{bare}".encode()
    fields = _fields(first)
    joint, salt = fields.get("r", ""), _decoded(fields.get("s", ""))
    iterations = fields.get("i", "")
    if not joint.startswith(own) or len(joint) == len(own):
        raise NotAuthenticated("the broker's SCRAM nonce does not begin with ours")
    if not (iterations.isascii() and iterations.isdigit() and len(iterations) < 9
            and ITERATIONS_MIN <= int(iterations) <= ITERATIONS_MAX):
        raise NotAuthenticated(
            f"the broker asks for {iterations[:20]!r} SCRAM iterations; "
            f"{ITERATIONS_MIN} to {ITERATIONS_MAX} are accepted")
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, int(iterations))
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    stored_key = hashlib.new(algorithm, client_key).digest()
    without_proof = f"c=biws,r={joint}"
    signed = f"{bare},{first.decode()},{without_proof}".encode()
    signature = hmac.digest(stored_key, signed, algorithm)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    last = yield f"{without_proof},p={base64.b64encode(proof).decode()}".encode()
    server_key = hmac.digest(salted, b"Server Key", algorithm)
    proved = _decoded(_fields(last).get("v", ""))
    if not hmac.compare_digest(proved, hmac.digest(server_key, signed, algorithm)):
        raise NotAuthenticated("the broker could not prove that it knows the password")


def _fields(message: bytes) -> dict[str, str]:
    """The fields of `a=1,b=2`; raises `NotAuthenticated` if the broker sent an error."""
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise NotAuthenticated("the broker's SCRAM message is not UTF-8") from None
    found = dict(item.split("=", 1) for item in text.split(",") if "=" in item)
    if "e" in found:
        raise NotAuthenticated(f"the broker refuses: {found['e'][:200]}")
    return found


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise NotAuthenticated("the broker's SCRAM message is not base64") from None
