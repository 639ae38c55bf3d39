"""The TLS context of a connection: the certificates to trust, and the client's own."""

import ssl
import tempfile
from pathlib import Path

from quipu.client.settings import ClientSettings
from quipu.model.errors import SettingError


def context(settings: ClientSettings) -> ssl.SSLContext:
    """The TLS context of a client's connections; raises `SettingError` for an unusable file."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.check_hostname = settings.ssl_endpoint_identification_algorithm == "https"
    if not settings.enable_ssl_certificate_verification:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    _trust(made, settings)
    _show(made, settings)
    return made


def _trust(made: ssl.SSLContext, settings: ClientSettings) -> None:
    location, text = settings.ssl_truststore_location, settings.ssl_truststore_certificates
    if location is None and text is None:
        made.load_default_certs()
        return
    try:
        made.load_verify_locations(cafile=location, cadata=text)
    except (OSError, ValueError) as error:
        where = location or "ssl.truststore.certificates"
        raise SettingError(f"no certificates to trust in {where}: {_words(error)}") from None


def _show(made: ssl.SSLContext, settings: ClientSettings) -> None:
    chain, key = settings.ssl_keystore_certificate_chain, settings.ssl_keystore_key
    if settings.ssl_keystore_location is not None:
        _load(made, settings.ssl_keystore_location, settings)
    elif chain is not None and key is not None:
        # OpenSSL reads a chain only from a file: only this user can read it, and it is deleted.
        with tempfile.TemporaryDirectory(prefix="quipu-tls-") as folder:
            path = Path(folder, "client.pem")
            path.touch(mode=0o600)
            path.write_text(f"{key}\n{chain}\n")
            _load(made, str(path), settings)
    elif chain is not None or key is not None:
        raise SettingError("ssl.keystore.certificate.chain and ssl.keystore.key go together")


def _load(made: ssl.SSLContext, path: str, settings: ClientSettings) -> None:
    password = settings.ssl_key_password
    try:
        made.load_cert_chain(path, settings.ssl_key_location, password=password or "")
    except (OSError, ValueError) as error:
        where = settings.ssl_keystore_location or "ssl.keystore.key"
        raise SettingError(
            f"no certificate with its key in {where}: {_words(error)}") from None


def _words(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
