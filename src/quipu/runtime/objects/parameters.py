"""The parameters in the URL of a store in the cloud: which there are, and what they may be.

    s3://BUCKET/PREFIX?endpoint=URL&region=NAME     path_style, unsigned_payload, ca, ...
    gs://BUCKET/PREFIX?endpoint=URL                 as an emulator or a proxy has
    az://CONTAINER/PREFIX?account=NAME&endpoint=URL

    endpoint            the server, http:// or https://; the provider's own if not given
    region              of an S3 bucket; us-east-1 if not given
    account             the storage account of an Azure container
    path_style          true: the bucket is in the path of requests, false: in the host name
    unsigned_payload    true: bytes of S3 puts are not hashed for the signature; if not given, true
                        for https, where TLS protects them, and false for http
    credentials         path of a file with credentials (credentials.py); if not given, they
                        come from the environment, or from the machine's role
    ca                  path of a PEM file with certificates to trust, besides the system's
    timeout_ms          deadline of one call, retries included
    retries             how often a request is repeated within a call

Invariants
    runtime.O7  a URL holds no credentials: they come from the environment or from a file, and are
                in no error and in no log

Not here: the meaning of a URL without its parameters (urls.py).
"""

import re
from collections.abc import Callable
from typing import Final, NamedTuple
from urllib.parse import parse_qsl

from quipu.model.errors import SettingError
from quipu.model.nearest import nearest

TIMEOUT_MS: Final = 60_000
TIMEOUT_MS_MAX: Final = 600_000
RETRIES: Final = 5
RETRIES_MAX: Final = 20
PARAMETERS_MAX: Final = 20
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_ENDPOINT: Final = re.compile(r"https?://[A-Za-z0-9.\[\]:_-]+(/[A-Za-z0-9._/-]*)?")
_SECRET: Final = re.compile(r"key|secret|token|password|sas|signature", re.IGNORECASE)


class StoreParameters(NamedTuple):
    """The parameters of a store in the cloud; None or the default if not given."""

    endpoint: str | None = None
    region: str | None = None
    account: str | None = None
    path_style: bool | None = None
    unsigned_payload: bool | None = None
    credentials: str | None = None
    ca: str | None = None
    timeout_ms: int = TIMEOUT_MS
    retries: int = RETRIES


def _endpoint(text: str) -> str:
    if not _ENDPOINT.fullmatch(text):
        raise ValueError("write http://HOST:PORT or https://HOST")
    return text.rstrip("/")


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError("write letters, digits, and - _ . between them")
    return text


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("write true or false")
    return text == "true"


def _path(text: str) -> str:
    if not text.startswith("/") or not text.isprintable():
        raise ValueError("write the absolute path of a file")
    return text


def _number(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 10 and low <= int(text) <= high):
            raise ValueError(f"write a number from {low} to {high}")
        return int(text)

    return parse


_PARSERS: Final[dict[str, Callable[[str], str | bool | int]]] = {
    "endpoint": _endpoint, "region": _name, "account": _name, "path_style": _flag,
    "unsigned_payload": _flag, "credentials": _path, "ca": _path,
    "timeout_ms": _number(100, TIMEOUT_MS_MAX), "retries": _number(0, RETRIES_MAX)}
_COMMON: Final = frozenset({"endpoint", "credentials", "ca", "timeout_ms", "retries"})
ALLOWED: Final = {  # scheme: names of parameters
    "s3": _COMMON | {"region", "path_style", "unsigned_payload"},
    "gs": _COMMON,
    "az": _COMMON | {"account"},
}
OWN_FILES: Final = frozenset({"credentials", "ca"})  # parameters that name files of one machine

assert _PARSERS.keys() == set(StoreParameters._fields)


def parse_parameters(scheme: str, query: str) -> StoreParameters:
    """The parameters in the part of a URL behind `?`; SettingError names the one at fault."""
    allowed = ALLOWED[scheme]
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query),
                          max_num_fields=PARAMETERS_MAX)
    except ValueError:
        raise SettingError("a store's parameters are written ?name=value&name=value, at most "
                           f"{PARAMETERS_MAX}") from None
    found: dict[str, str | bool | int] = {}
    for name, text in pairs:
        if name not in allowed:
            raise _unknown(scheme, name)
        if name in found:
            raise SettingError(f"parameter {name} of a {scheme}:// URL is given twice")
        try:
            found[name] = _PARSERS[name](text)
        except ValueError as error:
            raise SettingError(f"parameter {name} of a {scheme}:// URL is wrong: {error}") from None
    return StoreParameters(**found)  # type: ignore[arg-type]  # each by its own parser


def _unknown(scheme: str, name: str) -> SettingError:
    shown = name[:40] if name[:40].isprintable() else "?"
    if _SECRET.search(name):
        return SettingError(
            f"{shown} does not belong into a URL, which is seen in logs: put it into the "
            "environment, or into a file and name that by the parameter credentials")  # runtime.O7
    near = nearest(name, ALLOWED[scheme])
    hint = f"did you mean {near}?" if near else f"there are {', '.join(sorted(ALLOWED[scheme]))}"
    return SettingError(f"{scheme}:// URLs have no parameter {shown}: {hint}")
