"""UpdateFeatures — API key 57, versions 0-2.

Behaviour
    * the level of each feature is the only one that this version supports (serving/features.py):
      asking for it is no error, and any other is INVALID_UPDATE_VERSION
    * all features of a request are refused together, with the error of one, as in Kafka
    * with validate_only the response is the same
Versions
    v1  the kind of the change, and validate_only
    v2  no results per feature
"""

from typing import Final

from quipu.broker.serving.context import Broker, Context
from quipu.broker.serving.features import features
from quipu.model.errors import Code
from quipu.wire.messages.k57_update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

UPGRADE_TYPES: Final = (1, 2, 3)  # upgrade, safe downgrade, unsafe downgrade


def handle(
    broker: Broker, request: UpdateFeaturesRequest, context: Context
) -> UpdateFeaturesResponse:
    del broker, context
    levels = features()
    for update in request.feature_updates:
        why = _why_refused(update, levels)
        if why is not None:
            return UpdateFeaturesResponse(
                error_code=Code.INVALID_UPDATE_VERSION,
                error_message=f"no feature was changed: {update.feature[:80]!r} cannot have level "
                              f"{update.max_version_level}: {why}")
    return UpdateFeaturesResponse(error_message=None, results=[
        UpdatableFeatureResult(feature=update.feature, error_message="NONE")
        for update in request.feature_updates])


def _why_refused(update: FeatureUpdateKey, levels: dict[str, int]) -> str | None:
    if update.upgrade_type not in UPGRADE_TYPES:
        return f"the kind of change {update.upgrade_type} is unknown"
    level = levels.get(update.feature)
    if level is None:
        return f"there is no such feature here; there are {', '.join(levels)}"
    if update.max_version_level != level:
        return (f"its level is {level}, the only one that this version supports; a cluster gets "
                "another one with another version of the program")
    return None
