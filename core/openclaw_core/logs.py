"""JSON logs, one object a line, with the same keys in every process.

Extra fields come through `extra={"session": …}`; secrets never do.
"""

import json
import logging
import sys
import time
from typing import Any

_STANDARD = frozenset([*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"])


class JsonFormatter(logging.Formatter):
    """Renders time (Unix seconds), level, logger, message, the fixed fields and every `extra`."""

    def __init__(self, **fixed: str) -> None:
        super().__init__()
        self._fixed = fixed

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._fixed,
        }
        entry.update({key: value for key, value in vars(record).items() if key not in _STANDARD})
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str, ensure_ascii=False)


def configure(component: str, training: str = "") -> None:
    """Send every log record of this process to stderr as JSON. Called once, by `main`."""
    logging.Formatter.converter = time.gmtime
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(component=component, training=training))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
