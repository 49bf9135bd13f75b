"""What callers send to say who they are, and the check of the internal port's token. Clients' keys are in `keys`."""

import hmac
from collections.abc import Mapping
from hashlib import sha256


def bearer(headers: Mapping[str, str]) -> str | None:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


def given_keys(headers: Mapping[str, str]) -> list[str]:
    """The keys a client sends: OpenAI's clients a bearer token, Anthropic's x-api-key, some of them both."""
    keys = (bearer(headers), headers.get("x-api-key", "").strip())
    return [key for key in keys if key]


def fingerprint(text: str) -> str:
    """32 hex digits."""
    return sha256(text.encode()).hexdigest()[:32]


def is_authorized(headers: Mapping[str, str], token: str) -> bool:
    """Constant-time check of the internal port's token."""
    return hmac.compare_digest((bearer(headers) or "").encode(), token.encode())
