"""Pass: checks the options of WITH, and reads those that depend on nothing else."""

import re
from collections.abc import Mapping
from dataclasses import replace

from quipu.model.nearest import nearest
from quipu.pipeline.plan.connections import KAFKA_OPTIONS, refuse_unknown, setting_text
from quipu.pipeline.plan.draft import Draft
from quipu.pipeline.source import DirectRead, ErrorPolicy, OnRecreated
from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.statements import Option
from quipu.pipeline.sql.text import one_of

HOUR_MS = 3_600_000
OPTIONS = ("start offset", "start timestamp", "kafka time offset", "errors", "error column",
           "isolation level", "on topic recreated", "direct read", "confluent wire format",
           "group id prefix", "topic metadata refresh interval",
           "topic metadata refresh interval ms")
_UNITS_MS = {"ms": 1, "millisecond": 1, "s": 1000, "sec": 1000, "second": 1000, "m": 60_000,
             "min": 60_000, "minute": 60_000, "h": HOUR_MS, "hour": HOUR_MS}
_INTERVAL = re.compile(r"\s*([+-]?[0-9]{1,15})\s*([a-z]+)\s*")


def read_options(draft: Draft) -> Draft:
    """Refuse unknown options; read those that depend on nothing else."""
    options = draft.statement.options
    refuse_unknown(options, (*OPTIONS, *KAFKA_OPTIONS), "CREATE SOURCE")
    by_name = {option.name: option for option in options}
    if "isolation level" in by_name:
        draft = replace(draft, read_committed=_read_committed(by_name["isolation level"]))
    if "on topic recreated" in by_name:
        draft = replace(draft, on_recreated=_on_recreated(by_name["on topic recreated"]))
    if "direct read" in by_name:
        draft = replace(draft, direct_read=_direct_read(by_name["direct read"]))
    if "errors" in by_name:
        draft = replace(draft, errors=_policy(by_name["errors"]))
    return replace(draft, options=by_name)


def boolean(option: Option) -> bool:
    """TRUE or FALSE, also as strings."""
    text = setting_text(option.value).lower()
    if text not in ("true", "false"):
        raise SqlError(f"{option.name.upper()} must be TRUE or FALSE", option.value_span,
                       hint=f"write {option.name.upper()} = TRUE")
    return text == "true"


def refresh_interval_ms(options: Mapping[str, Option]) -> int | None:
    """The interval at which metadata is requested, to find new partitions."""
    option = options.get("topic metadata refresh interval")
    if option is not None:
        return _bounded(_interval_ms(option), option)
    option = options.get("topic metadata refresh interval ms")
    if option is not None:
        if not isinstance(option.value, int) or isinstance(option.value, bool):
            raise SqlError("TOPIC METADATA REFRESH INTERVAL MS must be a number", option.value_span,
                           hint="write 30000, for example")
        return _bounded(option.value, option)
    return None


def _read_committed(option: Option) -> bool:
    text = setting_text(option.value).lower().replace(" ", "_")
    if text not in ("read_committed", "read_uncommitted"):
        raise SqlError("ISOLATION LEVEL must be 'read_committed' or 'read_uncommitted'",
                       option.value_span, hint="leave it out for 'read_committed'")
    return text == "read_committed"


def _on_recreated(option: Option) -> OnRecreated:
    text = setting_text(option.value).strip().lower()
    names = [each.value for each in OnRecreated]
    if text not in names:
        raise SqlError(f"ON TOPIC RECREATED must be {one_of([repr(name) for name in names])}",
                       option.value_span, hint="leave it out for 'fail'")
    return OnRecreated(text)


def _direct_read(option: Option) -> DirectRead:
    text = setting_text(option.value).strip().lower()
    names = [each.value for each in DirectRead]
    if text not in names:
        raise SqlError(f"DIRECT READ must be {one_of([repr(name) for name in names])}",
                       option.value_span, hint="leave it out for 'auto'")
    return DirectRead(text)


def _policy(option: Option) -> ErrorPolicy:
    text = re.sub(r"[\s_-]+", " ", setting_text(option.value)).strip().lower()
    names = [policy.value for policy in ErrorPolicy]
    if text not in names:
        near = nearest(text, names)
        hint = f"did you mean '{near}'?" if near else "leave it out for 'dead letter'"
        raise SqlError(f"ERRORS must be {one_of([repr(name) for name in names])}",
                       option.value_span, hint=hint)
    return ErrorPolicy(text)


def _interval_ms(option: Option) -> int:
    found = _INTERVAL.fullmatch(setting_text(option.value).lower())
    unit = (_UNITS_MS.get(found[2]) or _UNITS_MS.get(found[2].removesuffix("s"))) if found else None
    if found is None or unit is None:
        raise SqlError(f"{option.name.upper()} must be an interval", option.value_span,
                       hint="write '30 seconds', for example")
    return int(found[1]) * unit


def _bounded(interval_ms: int, option: Option) -> int:
    if interval_ms < 0:
        raise SqlError("cannot convert negative interval to duration", option.value_span,
                       hint="write '30 seconds', for example")
    if interval_ms > HOUR_MS:
        raise SqlError("TOPIC METADATA REFRESH INTERVAL cannot be greater than 1 hour",
                       option.value_span, hint="write '1 hour' or less")
    if interval_ms < 1000:
        raise SqlError("TOPIC METADATA REFRESH INTERVAL must be at least 1 second",
                       option.value_span, hint="write '1 second' or more")
    return interval_ms
