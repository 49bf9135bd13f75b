"""What the simulated users are told by environment variables (`environmentHosting.env` of the resource)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from openclaw_environment.tasks import TASKS
from openclaw_environment.tasks.preference import PreferenceTask

MAX_USERS = 256


class SettingsError(ValueError):
    """A variable has a value that cannot be meant; the message names variable, value and choices."""


@dataclass(frozen=True)
class Settings:
    """Who the users are and how they ask."""

    task: PreferenceTask
    """OPENCLAW_TASK: short-statement (default) or no-lists."""
    users: int
    """OPENCLAW_USERS: users that talk at the same time, 1 to 256; default 8."""
    swapped: bool
    """OPENCLAW_REACTIONS: normal (default), or swapped = they praise what they dislike and the reverse."""
    temperature: float
    """OPENCLAW_TEMPERATURE: sampling temperature sent; default the task's."""
    max_tokens: int
    """OPENCLAW_MAX_TOKENS: longest answer asked for; default the task's."""
    seed: int
    """OPENCLAW_SEED: order of questions and choice of words; default 0."""
    stream: str
    """OPENCLAW_STREAM: never, half (default: every second user) or always."""
    start_stopped: bool
    """OPENCLAW_START: now (default), or stopped = the users wait for POST /start."""

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> Self:
        task = TASKS[
            _choice(environ, "OPENCLAW_TASK", tuple(name.replace("_", "-") for name in TASKS)).replace("-", "_")
        ]
        return cls(
            task=task,
            users=int(_number(environ, "OPENCLAW_USERS", 8, 1, MAX_USERS)),
            swapped=_choice(environ, "OPENCLAW_REACTIONS", ("normal", "swapped")) == "swapped",
            temperature=_number(environ, "OPENCLAW_TEMPERATURE", task.temperature, 0, 2),
            max_tokens=int(_number(environ, "OPENCLAW_MAX_TOKENS", task.max_tokens, 1, 32768)),
            seed=int(_number(environ, "OPENCLAW_SEED", 0, 0, 2**31)),
            stream=_choice(environ, "OPENCLAW_STREAM", ("half", "never", "always")),
            start_stopped=_choice(environ, "OPENCLAW_START", ("now", "stopped")) == "stopped",
        )

    def streams(self, user: int) -> bool:
        return self.stream == "always" or (self.stream == "half" and user % 2 == 1)


def _choice(environ: Mapping[str, str], variable: str, choices: tuple[str, ...]) -> str:
    """The variable's value; unset or empty means the first choice."""
    value = environ.get(variable, "").strip() or choices[0]
    if value not in choices:
        raise SettingsError(f"{variable} is {value!r}; choose one of {', '.join(choices)}")
    return value


def _number(environ: Mapping[str, str], variable: str, default: float, least: float, most: float) -> float:
    text = environ.get(variable, "").strip()
    try:
        value = float(text) if text else float(default)
    except ValueError as error:
        raise SettingsError(f"{variable} is {text!r}, which is not a number") from error
    if not least <= value <= most:
        raise SettingsError(f"{variable} is {text}; it must lie between {least:g} and {most:g}")
    return value
