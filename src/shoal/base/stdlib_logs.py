"""Log records of libraries: records of uvicorn, SQLAlchemy, asyncio and others in ``logging``, and Python's
warnings, become lines of ``shoal.base.logs``, one JSON object each.

Only warnings and errors are taken over, at any log level of Shoal: below that, SQLAlchemy writes statements with their
values, and secrets are among those. asyncio has loaded ``logging`` already, so this costs a process one object.
"""

from __future__ import annotations

import logging

from shoal.base.logs import get_logger, redact


class _JsonHandler(logging.Handler):
    """Passes each record to Shoal's logger of the same name."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
        except (TypeError, ValueError):  # arguments that do not fit the format must not lose the record
            message = str(record.msg)
        log, fault = get_logger(record.name), record.exc_info[1] if record.exc_info else None
        text = redact(message.strip())
        if record.levelno >= logging.ERROR:
            log.error(text, error=fault)
        else:
            log.warning(text, **({"error": f"{type(fault).__name__}: {fault}"} if fault is not None else {}))


def capture() -> None:
    """Send the records of all other loggers, and warnings, to Shoal's log. A second call changes nothing."""
    root = logging.getLogger()
    if any(isinstance(handler, _JsonHandler) for handler in root.handlers):
        return
    root.handlers[:] = [_JsonHandler(logging.WARNING)]
    root.setLevel(logging.WARNING)
    logging.captureWarnings(True)
