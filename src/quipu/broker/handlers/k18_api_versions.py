"""ApiVersions — API key 18, versions 0-4.

Behaviour
    * responds with every API that this broker serves, and its versions
    * is the one request that may come in a version the broker does not know: the response then has
      version 0, with UNSUPPORTED_VERSION and the list, so that the client can ask again
    * refuses a client whose software name or version is not made of letters, digits, "-" and "."
    * responds with the features and their finalized levels (serving/features.py)
Versions
    v1  throttle time
    v3  flexible encoding (the response header stays as it was); name and version of the client
    v4  features may have a lowest version of 0
"""

import re
from typing import Final

from quipu.broker.handlers import SUPPORTED
from quipu.broker.serving.context import Broker, Context
from quipu.broker.serving.features import EPOCH, features
from quipu.model.errors import Code
from quipu.wire.messages.k18_api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

SOFTWARE_SINCE: Final = 3  # the version that brought the name and version of the client
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(broker: Broker, request: ApiVersionsRequest, context: Context) -> ApiVersionsResponse:
    """Respond with the served APIs; they do not depend on the broker's state."""
    del broker
    if context.api_version >= SOFTWARE_SINCE and not _is_named(request):
        return ApiVersionsResponse(error_code=Code.INVALID_REQUEST)
    levels = features().items()
    return ApiVersionsResponse(
        api_keys=_served(),
        supported_features=[
            SupportedFeatureKey(name=name, min_version=level, max_version=level)
            for name, level in levels],
        finalized_features_epoch=EPOCH,
        finalized_features=[
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in levels])


def unsupported_version_response() -> ApiVersionsResponse:
    """The response to an unknown version; to be encoded in version 0."""
    return ApiVersionsResponse(error_code=Code.UNSUPPORTED_VERSION, api_keys=_served())


def _is_named(request: ApiVersionsRequest) -> bool:
    named = (request.client_software_name, request.client_software_version)
    return all(_SOFTWARE.fullmatch(text) for text in named)


def _served() -> list[ApiVersion]:
    return [
        ApiVersion(api_key=key, min_version=first, max_version=last)
        for key, (first, last) in SUPPORTED.items()
    ]
