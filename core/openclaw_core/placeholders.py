"""Whether the value of a secret is one that nobody can mean: empty, or the text of an example.

The operator asks before it starts pods, the processes ask when they start; both name the variable or key and never
the value.
"""

import re
from collections.abc import Mapping

EMPTY = "empty"
_WORDS = re.compile(
    r"change[-_ ]?me|replace[-_ ]?(me|this)|place[-_ ]?holder|your[-_ ]|insert[-_ ]|example[-_ ]?key|dummy|todo|fixme",
    re.IGNORECASE,
)
_TEMPLATE = re.compile(r"^(<.*>|\$\{.*\}|\$\(.*\)|\{\{.*\}\}|(sk-)?[xX*.…]+|none|null|my[-_].*)$", re.IGNORECASE)


def fault(value: str | None) -> str | None:
    """`empty`, `a placeholder`, or None for a value that may be real."""
    text = (value or "").strip()
    if not text:
        return EMPTY
    if _TEMPLATE.match(text) or _WORDS.search(text):
        return "a placeholder"
    return None


def variable_fault(environ: Mapping[str, str], variable: str) -> str | None:
    """`environment variable X is …`, for one that is there and cannot be meant; None where it is absent or may be real.

    Absent is no fault: the operator sets it only where the training names a Secret for it.
    """
    if variable not in environ:
        return None
    found = fault(environ[variable])
    return f"environment variable {variable} is {found}" if found else None
