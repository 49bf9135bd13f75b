"""Who calls: the client's key against ours, and the owner's fingerprint that sessions are kept under."""

import hmac
from collections.abc import Mapping
from hashlib import sha256

from openclaw_gateway import errors


def bearer(headers: Mapping[str, str]) -> str | None:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


def given_keys(headers: Mapping[str, str]) -> list[str]:
    """The keys a client sends: OpenAI's clients a bearer token, Anthropic's x-api-key, some of them both."""
    keys = (bearer(headers), headers.get("x-api-key", "").strip())
    return [key for key in keys if key]


def owner_of(headers: Mapping[str, str], api_key: str | None) -> str:
    """Fingerprint of the key (32 hex). Raises ApiError 401 when `api_key` is asked for and not given.

    Without authentication whatever key the client sends still tells its sessions from others'.
    """
    given = given_keys(headers)
    if api_key is None:
        return fingerprint(given[0] if given else "")
    if not given:
        raise errors.unauthorized("missing bearer token")
    if not any(hmac.compare_digest(key.encode(), api_key.encode()) for key in given):
        raise errors.unauthorized("invalid api key")
    return fingerprint(api_key)


def fingerprint(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:32]


def is_authorized(headers: Mapping[str, str], token: str) -> bool:
    """Constant-time check of the internal port's token."""
    return hmac.compare_digest((bearer(headers) or "").encode(), token.encode())
