"""Whether the value of a secret is one that nobody can mean: empty, or the text of an example.

The operator asks before it starts pods, the processes ask when they start; both name the variable or key and never
the value.
"""

import re

_WORDS = re.compile(
    r"change[-_ ]?me|replace[-_ ]?(me|this)|place[-_ ]?holder|your[-_ ]|insert[-_ ]|example[-_ ]?key|dummy|todo|fixme",
    re.IGNORECASE,
)
_EMPTY_TEMPLATE = re.compile(r"^(<.*>|\$\{.*\}|\$\(.*\)|\{\{.*\}\}|(sk-)?[xX*.]+)$")


def fault(value: str | None) -> str | None:
    """`empty`, `a placeholder`, or None for a value that may be real."""
    text = (value or "").strip()
    if not text:
        return "empty"
    if _EMPTY_TEMPLATE.match(text) or _WORDS.search(text):
        return "a placeholder"
    return None
