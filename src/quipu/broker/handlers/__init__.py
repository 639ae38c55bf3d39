"""Request handlers: one module per API key, named kNN_name.  What lies here is what is served.

A module opens with its API's name, key, versions and behaviour, and has one function:

    def handle(broker: Broker, request: XRequest, context: Context) -> XResponse

which may be a coroutine.  Produce and Fetch are different: their modules work on bytes.  Besides:

    ON_CONTROLLER = True       the handler runs on the controller; other nodes pass the request on
    def refuse(request, error) -> XResponse     an answer that tells every part of the error, where
                                                the whole has no place for one

Invariants
    H1  ApiVersions names every module here and nothing else
    H2  a handler serves every version between the two ends of its request's definition

Keys from OWN_KEY_FIRST on are our own; clients of Kafka do not know them, and take no harm.

To add an API: its messages (wire/messages/kNN_name), its handler here, its tests; `make docs`.
"""

from collections.abc import Awaitable, Callable
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Final

from quipu.broker.context import Broker, Context
from quipu.model.errors import Code, QuipuError
from quipu.wire.fields import parse_versions
from quipu.wire.messages import REQUESTS, RESPONSES
from quipu.wire.schema import Request, Response

Handler = Callable[[Broker, Any, Context], Response | Awaitable[Response]]

Refusal = Callable[[Any, QuipuError], Response]

PRODUCE_KEY: Final = 0
PRODUCE_VERSION_MIN: Final = 0  # advertised, and refused below 3: librdkafka looks for it

MODULES: Final[dict[int, str]] = {
    int(module.name[1:].partition("_")[0]): f"{__name__}.{module.name}"
    for module in iter_modules(__path__)
}


def _versions(api_key: int) -> tuple[int, int]:
    versions = REQUESTS[api_key].VERSIONS
    first = PRODUCE_VERSION_MIN if api_key == PRODUCE_KEY else versions[0]
    return first, versions[-1]


# The lowest and the highest version of each API that is served, both in.
SUPPORTED: Final[dict[int, tuple[int, int]]] = {key: _versions(key) for key in sorted(MODULES)}


@cache
def is_on_controller(api_key: int) -> bool:
    """Must the controller answer?"""
    return bool(getattr(import_module(MODULES[api_key]), "ON_CONTROLLER", False))


@cache
def refusal(api_key: int) -> Refusal | None:
    """How to tell every part of a request that all of it failed, if its module says how."""
    refuse: Refusal | None = getattr(import_module(MODULES[api_key]), "refuse", None)
    return refuse


def refused(request: Request, version: int, error: QuipuError) -> Response | None:
    """An answer that says that all of `request` failed; None if it has no place for that."""
    response = RESPONSES[request.KEY]()
    field = type(response).FIELDS.get("error_code")
    if error.code == Code.NONE:
        return None
    if field is None or version not in parse_versions(field.versions):
        refuse = refusal(request.KEY)
        parts = None if refuse is None else refuse(request, error)
        # An answer without parts would say that all is well.
        return parts if parts is not None and not _is_empty(parts) else None
    response.error_code = error.code  # type: ignore[attr-defined]  # it has the field
    if "error_message" in type(response).FIELDS:
        response.error_message = str(error)  # type: ignore[attr-defined]  # as above
    return response


def _is_empty(response: Response) -> bool:
    return not any(getattr(response, name) for name, field in type(response).FIELDS.items()
                   if field.is_array)


def import_all() -> None:
    """Import every handler, for a node that starts: later there may be no descriptor for it."""
    for name in MODULES.values():
        import_module(name)


@cache
def load(api_key: int) -> Handler:
    """The handler of an API in SUPPORTED; its module is imported on first use at the latest."""
    handle: Handler = import_module(MODULES[api_key]).handle
    return handle
