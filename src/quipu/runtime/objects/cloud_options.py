"""Makes obstore's clients of a bucket or container, with time limits and retries.

There are two for each store: one that repeats requests, and one that sends each request once, for
puts whose outcome must be known exactly (cloud.py).  Credentials that a file or the parameters do
not give are found by obstore: in the environment, or from the machine's role.

Not here: which parameters there are (parameters.py).
"""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, S3Store

from quipu.model.errors import SettingError
from quipu.runtime.objects.credentials import read_credentials
from quipu.runtime.objects.parameters import StoreParameters

REGION: Final = "us-east-1"  # what servers that are not Amazon's expect
CONNECT_SECONDS_MAX: Final = 5.0
BACKOFF_FIRST_SECONDS: Final = 0.05
BACKOFF_SECONDS_MAX: Final = 5.0

Client = S3Store | GCSStore | AzureStore
_STORES: Final[dict[str, Callable[..., Client]]] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}


def open_clients(
    scheme: str, place: str, prefix: str, parameters: StoreParameters
) -> tuple[Client, Client]:
    """A client that retries, and one that does not; SettingError if there can be none."""
    seconds = parameters.timeout_ms / 1000
    options: dict[str, Any] = {
        # Half of the deadline: a request whose server is silent can be sent a second time.
        "timeout": timedelta(seconds=seconds / 2),
        "connect_timeout": timedelta(seconds=min(seconds / 2, CONNECT_SECONDS_MAX)),
        "allow_http": (parameters.endpoint or "").startswith("http://"),
    }
    if parameters.ca is not None:
        try:
            options["root_certificate"] = Path(parameters.ca).read_bytes()
        except OSError as error:
            raise SettingError(f"certificates {parameters.ca}: {error.strerror}") from None
    config = _CONFIGS[scheme](parameters)
    try:
        return tuple(  # type: ignore[return-value]  # of two
            _STORES[scheme](
                place, prefix=prefix or None, config=config, client_options=options,
                retry_config=_retries(retries, seconds))
            for retries in (parameters.retries, 0))
    except (BaseError, ValueError, OSError) as error:
        # The message may quote credentials (runtime.O7).
        raise SettingError(f"the {scheme}:// store {place} cannot be opened "
                           f"({type(error).__name__}): check its parameters and credentials"
                           ) from None


def _retries(count: int, seconds: float) -> dict[str, Any]:
    return {
        "max_retries": count,
        "retry_timeout": timedelta(seconds=seconds),
        "backoff": {
            "init_backoff": timedelta(seconds=BACKOFF_FIRST_SECONDS),
            "max_backoff": timedelta(seconds=min(BACKOFF_SECONDS_MAX, seconds / 4)),
            "base": 2,
        },
    }


def _s3(parameters: StoreParameters) -> dict[str, Any]:
    endpoint = parameters.endpoint
    is_plain = (endpoint or "").startswith("http://")
    unsigned = parameters.unsigned_payload
    path_style = parameters.path_style if parameters.path_style is not None else (
        endpoint is not None)
    config: dict[str, Any] = {
        "region": parameters.region or REGION,
        "virtual_hosted_style_request": not path_style,
        "unsigned_payload": not is_plain if unsigned is None else unsigned,
    }
    if endpoint is not None:
        config["endpoint"] = endpoint
    if parameters.credentials is not None:
        config |= read_credentials("s3", parameters.credentials)
    return config


def _gs(parameters: StoreParameters) -> dict[str, Any]:
    config = {}
    if parameters.endpoint is not None:
        config["base_url"] = parameters.endpoint
    if parameters.credentials is not None:
        config["application_credentials"] = parameters.credentials
    return config


def _az(parameters: StoreParameters) -> dict[str, Any]:
    config = {} if parameters.account is None else {"account_name": parameters.account}
    if parameters.endpoint is not None:
        config["endpoint"] = parameters.endpoint
    if parameters.credentials is not None:
        config |= read_credentials("az", parameters.credentials)
    return config


_CONFIGS: Final = {"s3": _s3, "gs": _gs, "az": _az}
