"""Proofs of who a client is: PLAIN, and SCRAM, which does not show the password.

A mechanism is a generator: it yields what to send and is sent what came back, so that it knows
nothing of connections.  `talk` is that conversation held by an `exchange` of bytes.

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

ITERATIONS_MAX: Final = 1_000_000  # a broker could ask for any amount of our time
ITERATIONS_MIN: Final = 4_096  # fewer make the password cheap to guess (RFC 7677)
MESSAGE_SIZE_MAX: Final = 16_384
_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

Conversation = Generator[bytes, bytes, None]


def conversation(settings: ClientSettings) -> Conversation:
    """What to say, by the mechanism that is set."""
    assert settings.sasl_username is not None, "settings are checked"
    assert settings.sasl_password is not None, "settings are checked"
    if settings.sasl_mechanism == "PLAIN":
        return plain(settings.sasl_username, settings.sasl_password)
    return scram(
        _HASHES[settings.sasl_mechanism], settings.sasl_username, settings.sasl_password)


def talk(said: Conversation, exchange: Callable[[bytes], bytes]) -> None:
    """Hold the conversation; returns when both sides are content."""
    try:
        message = next(said)
        while True:
            answer = exchange(message)
            if len(answer) > MESSAGE_SIZE_MAX:
                raise NotAuthenticated(f"the broker's SASL message has {len(answer)} bytes")
            message = said.send(answer)
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
    answer = _fields(first)
    joint, salt = answer.get("r", ""), _decoded(answer.get("s", ""))
    iterations = answer.get("i", "")
    if not joint.startswith(own) or len(joint) == len(own):
        raise NotAuthenticated("the broker's SCRAM nonce does not begin with ours")
    if not (iterations.isascii() and iterations.isdigit() and len(iterations) < 9
            and ITERATIONS_MIN <= int(iterations) <= ITERATIONS_MAX):
        raise NotAuthenticated(
            f"the broker asks for {iterations[:20]!r} SCRAM iterations; "
            f"{ITERATIONS_MIN} to {ITERATIONS_MAX} are taken")
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, int(iterations))
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    stored_key = hashlib.new(algorithm, client_key).digest()
    without_proof = f"c=biws,r={joint}"
    signed = f"{bare},{first.decode()},{without_proof}".encode()
    signature = hmac.digest(stored_key, signed, algorithm)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    last = yield f"{without_proof},p={base64.b64encode(proof).decode()}".encode()
    server_key = hmac.digest(salted, b"Server Key", algorithm)
    told = _decoded(_fields(last).get("v", ""))
    if not hmac.compare_digest(told, hmac.digest(server_key, signed, algorithm)):
        raise NotAuthenticated("the broker could not prove that it knows the password")


def _fields(message: bytes) -> dict[str, str]:
    """`a=1,b=2`; an error that the other side tells is raised."""
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
