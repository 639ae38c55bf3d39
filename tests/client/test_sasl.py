"""SCRAM and PLAIN: the conversations of the RFCs, and both against a server, over TLS too."""

import base64
import hashlib
import hmac
import ssl
from pathlib import Path

import pytest

from quipu.client import sasl
from quipu.client.connection import BrokerConnection
from quipu.client.errors import ConnectionFailed, NotAuthenticated
from quipu.client.settings import ClientSettings, client_settings
from quipu.model.errors import Code, SettingError
from quipu.model.settings_types import Address
from quipu.wire.messages.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from quipu.wire.messages.k36_sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from quipu.wire.schema import Response
from tests.client.certificate import CERTIFICATE, KEY
from tests.client.fake_kafka import FakeKafka

ITERATIONS = 4096


class ScramServer:
    """The other half of RFC 5802, for one user."""

    def __init__(self, fake: FakeKafka, algorithm: str, password: str) -> None:
        self.algorithm = algorithm
        self.password = password
        self.signed = ""
        fake.answers[17] = self.handshake
        fake.answers[36] = self.authenticate

    def handshake(self, request: SaslHandshakeRequest, _version: int) -> Response:
        served = f"SCRAM-{self.algorithm[:3].upper()}-{self.algorithm[3:]}"
        wrong = request.mechanism != served
        return SaslHandshakeResponse(
            error_code=Code.UNSUPPORTED_SASL_MECHANISM if wrong else 0, mechanisms=[served])

    def authenticate(self, request: SaslAuthenticateRequest, _version: int) -> Response:
        said = request.auth_bytes.decode()
        if said.startswith("n,,"):
            nonce = said.rpartition("r=")[2] + "server"
            salt = base64.b64encode(b"salt").decode()
            first = f"r={nonce},s={salt},i={ITERATIONS}"
            self.signed = f"{said[3:]},{first}"
            return SaslAuthenticateResponse(auth_bytes=first.encode())
        without_proof, _, proof = said.rpartition(",p=")
        signed = f"{self.signed},{without_proof}".encode()
        salted = hashlib.pbkdf2_hmac(
            self.algorithm, self.password.encode(), b"salt", ITERATIONS)
        stored = hashlib.new(
            self.algorithm, hmac.digest(salted, b"Client Key", self.algorithm)).digest()
        signature = hmac.digest(stored, signed, self.algorithm)
        key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
        if hashlib.new(self.algorithm, key).digest() != stored:
            return SaslAuthenticateResponse(
                error_code=Code.SASL_AUTHENTICATION_FAILED, error_message="wrong password")
        server_key = hmac.digest(salted, b"Server Key", self.algorithm)
        verifier = base64.b64encode(hmac.digest(server_key, signed, self.algorithm)).decode()
        return SaslAuthenticateResponse(auth_bytes=f"v={verifier}".encode())


def settings_for(fake: FakeKafka, mechanism: str, password: str = "s3cret", **more: str
                 ) -> ClientSettings:
    return client_settings({
        "bootstrap.servers": fake.bootstrap, "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism, "sasl.username": "user", "sasl.password": password,
        **{name.replace("_", "."): value for name, value in more.items()}})


def connect(fake: FakeKafka, settings: ClientSettings) -> None:
    BrokerConnection(Address("localhost", fake.port), settings).close()


def test_the_conversation_of_rfc_7677() -> None:
    said = sasl.scram("sha256", "user", "pencil", nonce="rOprNGfwEbeRWgbNEkqO")
    assert next(said) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    last = said.send(f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode())
    assert last == f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    with pytest.raises(StopIteration):
        said.send(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize("first", [
    b"", b"\xff", b"r=other,s=AAAA,i=4096", b"r=mine,s=AAAA,i=4096", b"r=mine1,s=!,i=4096",
    b"r=mine1,s=AAAA,i=1", b"r=mine1,s=AAAA,i=99999999", b"r=mine1,s=AAAA,i=4096\xc2\xb2",
    b"e=unknown-user",
])
def test_what_a_broker_may_not_say(first: bytes) -> None:
    said = sasl.scram("sha256", "user", "pencil", nonce="mine")
    next(said)
    with pytest.raises(NotAuthenticated):
        said.send(first)


def test_a_broker_that_does_not_know_the_password_is_not_believed() -> None:
    said = sasl.scram("sha512", "a,b=c", "pencil", nonce="mine")
    assert next(said) == b"n,,n=a=2Cb=3Dc,r=mine"
    said.send(b"r=mine1,s=AAAA,i=4096")
    with pytest.raises(NotAuthenticated, match="could not prove"):
        said.send(b"v=AAAA")


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_against_a_server(mechanism: str) -> None:
    """I18: brokers that want a proof."""
    with FakeKafka() as fake:
        ScramServer(fake, mechanism.replace("SCRAM-SHA-", "sha"), "s3cret")
        connect(fake, settings_for(fake, mechanism))
        with pytest.raises(NotAuthenticated, match="refuses user: wrong password"):
            connect(fake, settings_for(fake, mechanism, "wrong"))
        with pytest.raises(NotAuthenticated, match=f"it accepts {mechanism}"):
            connect(fake, settings_for(fake, "PLAIN"))


def test_plain_over_tls(tmp_path: Path) -> None:
    """I18: encrypted; the broker shows a certificate, the client may show one too."""
    said = []

    def authenticate(request: SaslAuthenticateRequest, _version: int) -> Response:
        said.append(request.auth_bytes)
        return SaslAuthenticateResponse()

    pem = tmp_path / "both.pem"
    pem.write_text(KEY + CERTIFICATE)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pem)
    server.load_verify_locations(cadata=CERTIFICATE)
    server.verify_mode = ssl.CERT_REQUIRED
    own = {"ssl_keystore_certificate_chain": CERTIFICATE, "ssl_keystore_key": KEY}
    with FakeKafka(tls=server) as fake:
        fake.answers[17] = lambda _request, _version: SaslHandshakeResponse(mechanisms=["PLAIN"])
        fake.answers[36] = authenticate
        for more in (own, {"ssl_certificate_location": str(pem)}):
            connect(fake, settings_for(fake, "PLAIN", security_protocol="SASL_SSL",
                                       ssl_truststore_certificates=CERTIFICATE, **more))
        assert said == [b"\0user\0s3cret"] * 2
        with pytest.raises(NotAuthenticated, match="its certificate is not trusted"):
            connect(fake, settings_for(fake, "PLAIN", security_protocol="SASL_SSL", **own))
        named = client_settings({
            "security.protocol": "SSL", "ssl.ca.location": str(pem),
            "ssl.keystore.location": str(pem)})
        with pytest.raises(NotAuthenticated, match=r"127\.0\.0\.1"):
            BrokerConnection(Address("127.0.0.1", fake.port), named)
        unnamed = client_settings({
            "security.protocol": "SSL", "ssl.ca.location": str(pem),
            "ssl.keystore.location": str(pem), "ssl.endpoint.identification.algorithm": ""})
        BrokerConnection(Address("127.0.0.1", fake.port), unnamed).close()
        unverified = client_settings({
            "security.protocol": "SSL", "enable.ssl.certificate.verification": "false",
            "ssl.keystore.location": str(pem), "socket.connection.setup.timeout.ms": "300"})
        BrokerConnection(Address("127.0.0.1", fake.port), unverified).close()
    with FakeKafka() as fake, pytest.raises(ConnectionFailed, match="TLS"):
        BrokerConnection(Address("127.0.0.1", fake.port), unverified)


@pytest.mark.parametrize(("given", "words"), [
    ({"ssl.ca.location": "/nowhere.pem"}, "no certificates to trust in /nowhere.pem: No such file"),
    ({"ssl.truststore.certificates": "x"}, "no certificates to trust in ssl.truststore"),
    ({"ssl.keystore.location": "/nowhere.pem"}, "no certificate with its key in /nowhere.pem"),
    ({"ssl.keystore.key": KEY}, "go together"),
    ({"ssl.keystore.key": "x", "ssl.keystore.certificate.chain": CERTIFICATE},
     "no certificate with its key in ssl.keystore.key"),
])
def test_certificates_that_are_not_there(given: dict[str, str], words: str) -> None:
    with FakeKafka() as fake, pytest.raises(SettingError, match=words):
        connect(fake, client_settings({"security.protocol": "SSL", **given}))
