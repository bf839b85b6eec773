"""Log messages of the package, through Python's `logging` under the name "octants".

`qd.set_logging_level("debug")` sets the threshold. The program's own `logging` configuration determines the
destination. Without one, messages go to standard error.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from os import path as paths

TRACE, DEBUG, INFO, WARN, ERROR, CRITICAL = "trace", "debug", "info", "warn", "error", "critical"

_LEVELS = {
    TRACE: 5,
    DEBUG: logging.DEBUG,
    INFO: logging.INFO,
    WARN: logging.WARNING,
    "warning": logging.WARNING,
    ERROR: logging.ERROR,
    CRITICAL: logging.CRITICAL,
    "off": logging.CRITICAL + 10,
}

_PACKAGE = paths.join(paths.dirname(__file__), "")

logging.addLevelName(_LEVELS[TRACE], "TRACE")
logger = logging.getLogger("octants")
logger.setLevel(logging.INFO)


class _StandardError(logging.StreamHandler):
    """Prints messages of a program that has configured no logging. Python itself would print only warnings and
    errors.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        return not logging.getLogger().handlers and all(handler is self for handler in logger.handlers)

    def emit(self, record: logging.LogRecord) -> None:
        self.setStream(sys.stderr)
        super().emit(record)


_standard_error = _StandardError()


def set_logging_level(level: str) -> None:
    """Drops messages below this level: trace, debug, info, warn, error, critical or off."""
    logger.setLevel(_number(level))
    if logger.level <= logging.DEBUG:
        logger.addHandler(_standard_error)
    else:
        logger.removeHandler(_standard_error)


def is_logging_effective(level: str) -> bool:
    """Whether messages of this level pass `set_logging_level`."""
    return logger.getEffectiveLevel() <= _number(level)


def trace(message: str) -> None:
    """Logs a message at level trace."""
    logger.log(_LEVELS[TRACE], message)


def debug(message: str) -> None:
    """Logs a message at level debug."""
    logger.debug(message)


def info(message: str) -> None:
    """Logs a message at level info."""
    logger.info(message)


def warn(message: str) -> None:
    """Logs a message at level warn."""
    logger.warning(message)


def warn_of_code(path: str, line: int, message: str) -> None:
    """Logs a warning about a line of the user's code. Lines of the package itself are skipped."""
    if not path.startswith(_PACKAGE):
        logger.warning("%s:%d: %s", path, line, message)


def error(message: str) -> None:
    """Logs a message at level error."""
    logger.error(message)


def critical(message: str) -> None:
    """Logs a message at level critical."""
    logger.critical(message)


def _number(level: str) -> int:
    try:
        return _LEVELS[level.lower()]
    except (KeyError, AttributeError):
        raise ValueError(f"{level!r} is not a logging level: use one of {', '.join(_LEVELS)}") from None


def _get_logging(level: str) -> Callable[[str], None]:
    """The log function of a level by its name. Programs that replaced a function restore it with this."""
    return {TRACE: trace, DEBUG: debug, INFO: info, WARN: warn, ERROR: error, CRITICAL: critical}[level]
