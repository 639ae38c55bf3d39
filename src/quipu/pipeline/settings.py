"""The settings of a pipeline, besides Spark's own.

    quipu.buckets             number of buckets of new tables; buckets are merged in parallel
    quipu.trigger.ms          shortest time between two batches of a view
    quipu.batch.offsets.max   most messages of one source in one batch
    quipu.sql.outside.enabled whether queries may use what is outside of the pipeline: java_method
                              and reflect, files as tables, scripts, environment variables
    quipu.wait.ms             how long SELECT waits for a view that fails; ten times as long for a
                              view without progress; without limit for one that makes progress
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quipu.model.errors import SettingError
from quipu.model.nearest import nearest

PREFIX = "quipu."
NUMBER_MAX = 2**31 - 1


@dataclass(frozen=True)
class Settings:
    """The settings of a pipeline; with 0 buckets a table has two for each core, at least four."""

    buckets: int = 0
    trigger_ms: int = 0
    batch_offsets_max: int = 1_000_000
    wait_ms: int = 30_000
    sql_outside_enabled: bool = False


_NAMES = {f"{PREFIX}{name.replace('_', '.')}": name for name in Settings.__dataclass_fields__}


def parsed(given: Mapping[str, str]) -> tuple[Settings, dict[str, str]]:
    """The pipeline's settings, and Spark's; raises SettingError for an unknown or wrong one."""
    ours: dict[str, Any] = {}
    sparks: dict[str, str] = {}
    for name, value in given.items():
        if name.startswith("spark."):
            sparks[name] = str(value)
        elif name in _NAMES:
            read = _flag if isinstance(getattr(Settings, _NAMES[name]), bool) else _number
            ours[_NAMES[name]] = read(name, str(value))
        else:
            near = nearest(name, _NAMES)
            raise SettingError(f"unknown setting {name[:100]}"
                               + (f"; did you mean {near}?" if near else ""))
    return Settings(**ours), sparks


def _flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise SettingError(f"{name}={text[:80]}: must be true or false")
    return text.lower() == "true"


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= NUMBER_MAX):
        raise SettingError(f"{name}={text[:80]}: must be a number from 0 to {NUMBER_MAX}")
    return int(text)
