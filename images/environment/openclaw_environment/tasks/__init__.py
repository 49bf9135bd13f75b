"""Hidden preferences of the simulated users: pure data and functions, no network, no torch."""

from openclaw_environment.tasks.no_lists import NO_LISTS
from openclaw_environment.tasks.preference import PreferenceTask
from openclaw_environment.tasks.short_statement import SHORT_STATEMENT

TASKS: dict[str, PreferenceTask] = {task.name: task for task in (SHORT_STATEMENT, NO_LISTS)}
"""By name, as the environment's configuration names them."""
