"""An engine's refusal as a client reads it."""

import orjson
import pytest

from openclaw_gateway import errors

PLACE = (
    '\n\n  File "/opt/venv/lib/python3.13/site-packages/sglang/http_server.py", line 1870, in chat\n    POST /v1/chat'
)


@pytest.mark.parametrize("tail", [PLACE, "Traceback (most recent call last):\n ..."])
def test_engines_refusal_keeps_its_words_and_loses_the_place_in_its_source(tail: str) -> None:
    words = "1 validation error:\n  {'msg': \"Input should be 'system' or 'user'\", 'input': 'robot'}"
    found = errors.from_engine(400, orjson.dumps({"object": "error", "message": words + tail}))
    assert (found.status, found.message, found.code) == (400, words, "invalid_request")
