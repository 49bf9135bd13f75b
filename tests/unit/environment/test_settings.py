import pytest

from openclaw_environment.settings import Settings, SettingsError


def test_settings_without_variables_are_the_quickstarts() -> None:
    settings = Settings.read({})
    assert (settings.task.name, settings.users, settings.swapped) == ("short_statement", 8, False)
    assert (settings.temperature, settings.max_tokens, settings.seed) == (0.7, 24, 0)
    assert not settings.start_stopped


def test_settings_take_every_variable() -> None:
    settings = Settings.read(
        {
            "OPENCLAW_TASK": "no-lists",
            "OPENCLAW_USERS": "3",
            "OPENCLAW_REACTIONS": "swapped",
            "OPENCLAW_TEMPERATURE": "0.5",
            "OPENCLAW_MAX_TOKENS": "7",
            "OPENCLAW_SEED": "42",
            "OPENCLAW_STREAM": "always",
            "OPENCLAW_START": "stopped",
        }
    )
    assert (settings.task.name, settings.users, settings.swapped) == ("no_lists", 3, True)
    assert (settings.temperature, settings.max_tokens, settings.seed) == (0.5, 7, 42)
    assert settings.streams(0) and settings.start_stopped


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("OPENCLAW_TASK", "lists", "short-statement, no-lists"),
        ("OPENCLAW_USERS", "0", "between 1 and 256"),
        ("OPENCLAW_USERS", "many", "not a number"),
        ("OPENCLAW_REACTIONS", "reverse", "normal, swapped"),
    ],
)
def test_settings_name_variable_value_and_choices(variable: str, value: str, words: str) -> None:
    with pytest.raises(SettingsError) as error:
        Settings.read({variable: value})
    assert variable in str(error.value) and value in str(error.value) and words in str(error.value)
