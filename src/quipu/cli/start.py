"""`quipu start`: runs a node until SIGTERM or Ctrl-C.

Prints one line on standard output, `quipu ready HOST:PORT`, when the node serves; everything else
goes to the log on standard error.  SIGTERM and SIGINT stop the node cleanly, a second one at once.

It parses its options with the standard library, because importing a command-line framework would
delay the start.  Settings come from, weakest first: defaults, --config FILE, QUIPU_... environment
variables, the command line.
"""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from quipu.broker.observing import logs
from quipu.cli.config_file import read_config
from quipu.model.errors import QuipuError, SettingError
from quipu.model.settings import (
    BROKER,
    SETTINGS_PAGE,
    BrokerSettings,
    names_without_effect,
    parse,
)
from quipu.model.settings_sources import (
    Given,
    broker_settings,
    from_assignments,
    from_environment,
    from_properties,
    may_be_of_class,
)
from quipu.model.settings_types import Address

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2

_OPTIONS: Final = {  # option: the setting that it is short for
    "dir": "log.dirs",
    "listen": "listeners",
    "name": "node.name",
    "rack": "broker.rack",
}

_log = logging.getLogger(__name__)


def main(arguments: Sequence[str]) -> int:
    """Run a node; returns the exit code."""
    options = parser().parse_args(arguments)
    if not __debug__:
        return _fail("python -O removes the checks that guard your data; start without it")
    try:
        given = _given(options)
        for name, (value, where, _) in given.items():
            if not may_be_of_class(name):
                parse(BROKER, name, value, where)
    except SettingError as error:
        return _fail(error, EXIT_USAGE)
    try:
        settings = broker_settings(_from_file(options.config), from_environment(os.environ), given)
    except SettingError as error:
        return _fail(error)
    logs.configure(level=settings.logging_level, form=settings.logging_format)
    if names := names_without_effect(BROKER, settings.explicit):
        _log.warning("%d settings have no effect here: %s (%s says why)",
                     len(names), ", ".join(names), SETTINGS_PAGE)
    return _serve(settings)


def _serve(settings: BrokerSettings) -> int:
    import uvloop  # noqa: PLC0415 not needed to report a wrong option

    from quipu.broker import node  # noqa: PLC0415
    from quipu.runtime.garbage import keep_collections_short  # noqa: PLC0415

    keep_collections_short()
    try:
        uvloop.run(node.run(settings, _announce))
    except QuipuError as error:
        return _fail(error)
    except OSError as error:
        return _fail(f"{error.filename or settings.log_dirs}: {error.strerror or error}")
    except KeyboardInterrupt:  # before the node could take the signal itself
        return 128 + 2
    except Exception:  # noqa: BLE001 the last line of defence: log, and end
        _log.critical("the node failed; this is a bug", exc_info=True)
        return EXIT_FAILED
    return 0


def _announce(host: str, port: int) -> None:
    print(f"quipu ready {Address(host, port)}", flush=True)


def parser() -> argparse.ArgumentParser:
    """The options of the command; public for the reference in docs."""
    made = argparse.ArgumentParser(
        prog="quipu start",
        description="Run a node.  Prints `quipu ready HOST:PORT` when it serves; logs to standard "
        "error; SIGTERM or Ctrl-C stops it cleanly.",
        epilog="Settings are spelled as Kafka spells them, such as log.segment.bytes.  They are "
        "read from --config FILE, then from QUIPU_... environment variables (such as "
        "QUIPU_LOG_SEGMENT_BYTES), then from the command line; the last one wins.  Secrets, such "
        "as peer.secret, belong in the file or the environment: others can read a command line.",
        allow_abbrev=False,
    )
    add = made.add_argument
    add("--dir", metavar="DIR", help="directory of the node's data (default: ./quipu-data)")
    add(
        "--listen",
        metavar="HOST:PORT",
        help="address for Kafka clients, port 0 for a free one (default: 127.0.0.1:9092)",
    )
    add("--name", metavar="CHAIN-N", help="name of this node, such as a-0 (default: quipu-0)")
    add("--rack", metavar="R", help="rack or availability zone that this node is in")
    add("--config", metavar="FILE", type=Path, help="properties file with settings")
    add(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a setting; may be repeated",
    )
    return made


def _given(options: argparse.Namespace) -> dict[str, Given]:
    """The settings of the command line; an option and --set must not disagree about one."""
    given = from_assignments(options.set)
    for option, setting in _OPTIONS.items():
        value: str | None = getattr(options, option)
        if value is None:
            continue
        where = f"--{option} {value}"
        earlier = given.get(setting)
        if earlier is not None and earlier.value != value:
            raise SettingError(f"{where} and {earlier.where} disagree; keep one")
        given[setting] = Given(value, where)
    return given


def _from_file(path: Path | None) -> dict[str, Given]:
    return {} if path is None else from_properties(read_config(path), str(path))


def _fail(why: object, code: int = EXIT_FAILED) -> int:
    print(f"quipu: {why}", file=sys.stderr)
    return code
