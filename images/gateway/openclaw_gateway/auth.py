"""Who calls: the client's key against ours, and the owner's fingerprint that sessions are kept under."""

import hmac
from collections.abc import Mapping
from hashlib import sha256

from openclaw_gateway import errors


def bearer(headers: Mapping[str, str]) -> str | None:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


def owner_of(headers: Mapping[str, str], api_key: str | None) -> str:
    """Fingerprint of the key (32 hex). Raises ApiError 401 when `api_key` is asked for and not given.

    Without authentication whatever key the client sends still tells its sessions from others'.
    """
    token = bearer(headers)
    if api_key is not None:
        if token is None:
            raise errors.unauthorized("missing bearer token")
        if not hmac.compare_digest(token.encode(), api_key.encode()):
            raise errors.unauthorized("invalid api key")
    return fingerprint(token or "")


def fingerprint(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:32]


def is_authorized(headers: Mapping[str, str], token: str) -> bool:
    """Constant-time check of the internal port's token."""
    return hmac.compare_digest((bearer(headers) or "").encode(), token.encode())
