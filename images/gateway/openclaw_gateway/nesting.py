"""How deep a client's or a model's JSON may be: orjson reads more levels than it writes. Pure."""

from typing import Any

import orjson

LEVELS_WRITTEN = 254
"""By orjson."""


def is_too_deep(raw: bytes, value: Any, *, below: int) -> bool:
    """True when `value`, read from `raw`, cannot be written so many levels below the top of something else."""
    if raw.count(b"{") + raw.count(b"[") <= LEVELS_WRITTEN - below:
        return False
    for _ in range(below):
        value = [value]
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError:
        return True
    return False
