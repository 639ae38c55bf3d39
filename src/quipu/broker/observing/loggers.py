"""The levels of this process's loggers, under the names that Kafka has for levels.

A logger is named as its module; `quipu.broker` sets the level of all loggers below it that have
none of their own, and `root` that of all.  Levels last until the process ends: `logging.level` is
in force again after a restart.

Invariants
    broker.observing.L1  only loggers that exist can be changed, so clients create none
"""

import logging
from typing import Final

from quipu.model.errors import Code, RequestError, SettingError

ROOT: Final = "root"
TRACE: Final = 5  # below Python's lowest level
LEVELS: Final = {
    "TRACE": TRACE, "DEBUG": logging.DEBUG, "INFO": logging.INFO, "WARN": logging.WARNING,
    "ERROR": logging.ERROR, "FATAL": logging.CRITICAL}


def logger_levels() -> dict[str, str]:
    """The level in force of each logger, by name."""
    known = logging.root.manager.loggerDict
    levels = {ROOT: logging.root.level}
    for name in sorted(known):
        levels[name] = _level(name, levels[ROOT])
    return {name: _name_of(level) for name, level in levels.items()}


def check_level(name: str, level: str | None) -> None:
    """Raise unless the logger `name` exists and may have this level; None: its parent's."""
    if name != ROOT and name not in logging.root.manager.loggerDict:  # broker.observing.L1
        raise SettingError(f"there is no logger {name[:80]!r}; DescribeConfigs of this broker's "
                           "loggers (kafka-configs --entity-type broker-loggers) names them")
    if level is None:
        if name == ROOT:
            raise RequestError("the root logger has no parent: set its level instead",
                               code=Code.INVALID_REQUEST)
    elif level not in LEVELS:
        raise SettingError(f"{name[:80]}: {level[:40]!r} is not a level; it is one of "
                           f"{', '.join(LEVELS)}")


def set_level(name: str, level: str | None) -> None:
    """Change the level of a logger; see `check_level`."""
    check_level(name, level)
    logger = logging.root if name == ROOT else logging.getLogger(name)
    logger.setLevel(logging.NOTSET if level is None else LEVELS[level])


def _level(name: str, root: int) -> int:
    """The level of the logger, else of the nearest one above it that has one."""
    known = logging.root.manager.loggerDict
    while name:
        logger = known.get(name)  # a name that only has loggers below it has a placeholder
        if isinstance(logger, logging.Logger) and logger.level:
            return logger.level
        name = name.rpartition(".")[0]
    return root


def _name_of(level: int) -> str:
    return next((name for name, least in reversed(LEVELS.items()) if level >= least), "TRACE")
