"""Formats log lines for standard error: one event per line, with fields.

    2026-01-31T12:00:00.123Z INFO  storage.log segment rolled log=orders-0 base_offset=417
    {"time": "2026-01-31T12:00:00.123Z", "level": "info", "logger": "storage.log", ...}

Code logs through the standard library and gives fields in `extra`:

    _log.info("segment rolled", extra={"log": name, "base_offset": base})

`logging.format` chooses between the two forms, `logging.level` the lowest level that is logged.  An
event is always one line: line breaks and control characters are escaped.  The lines of a traceback
are indented, so that no text of an error looks like an event.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final, TextIO

LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("text", "json")

_STANDARD: Final = frozenset({*logging.makeLogRecord({}).__dict__, "message", "taskName"})
_SAFE: Final = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/@+,%*#~[]()<>"
)


def configure(*, level: str, form: str, stream: TextIO | None = None) -> None:
    """Send everything logged in this process to `stream` (standard error) in `form`."""
    assert level in LEVELS, level
    assert form in FORMATS, form
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # asyncio logs every slow callback, and socket errors that the server handles itself
    logging.getLogger("asyncio").setLevel(logging.ERROR)


class TextFormatter(logging.Formatter):
    """For people: time, level, room, message, then `name=value` pairs."""

    def format(self, record: logging.LogRecord) -> str:
        message = _one_line(_message(record))
        words = [_time(record), f"{record.levelname:<7}", _room(record), message]
        words += [f"{name}={_quoted(value)}" for name, value in _fields(record).items()]
        line = " ".join(words)
        if not record.exc_info:
            return line
        trace = self.formatException(record.exc_info).splitlines()
        return "\n".join((line, *(f"    {_one_line(text)}" for text in trace)))


class JsonFormatter(logging.Formatter):
    """For machines: one JSON object per line; a traceback is a field of it."""

    def format(self, record: logging.LogRecord) -> str:
        event: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": _room(record),
            "message": _message(record),
            **_fields(record),
        }
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        return json.dumps(event, default=str)


def _message(record: logging.LogRecord) -> str:
    """The message with its arguments; a wrong placeholder must not cost the line."""
    try:
        return record.getMessage()
    except (TypeError, ValueError):
        return f"{record.msg} {record.args}"


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{int(record.msecs):03}Z"


def _room(record: logging.LogRecord) -> str:
    return record.name.removeprefix("quipu.")


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in record.__dict__.items() if name not in _STANDARD}


def _quoted(value: object) -> str:
    text = str(value)
    return text if text and _SAFE.issuperset(text) else json.dumps(text)


def _one_line(text: str) -> str:
    """`text` with line breaks and control characters escaped."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
