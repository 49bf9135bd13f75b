"""What the gateway takes from its environment, and how it says what is wrong with it."""

import logging

import pytest

from openclaw_core import names
from openclaw_core.config.components import ConfigError
from openclaw_gateway import __main__ as entry
from openclaw_gateway.settings import Settings

ENOUGH = {names.ENV_GATEWAY_TOKEN: "t0ken"}


def test_defaults_are_those_of_a_pod():
    settings = Settings.from_environment(ENOUGH | {names.ENV_POD_UID: "u"})
    assert (settings.kubernetes, settings.engines, settings.internal_port) == (True, (), 30001)
    assert str(settings.experience_dir) == "/var/lib/openclaw/experience"
    assert (settings.api_key, settings.pod_uid) == (None, "u")


def test_without_kubernetes_engines_are_named_by_hand():
    environ = ENOUGH | {"OPENCLAW_KUBERNETES": "off", "OPENCLAW_ENGINES": "127.0.0.1:8000, [::1]:8001"}
    assert Settings.from_environment(environ).engines == ("127.0.0.1:8000", "[::1]:8001")


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({}, names.ENV_GATEWAY_TOKEN),
        (ENOUGH | {names.ENV_GATEWAY_API_KEY: " "}, names.ENV_GATEWAY_API_KEY),
        (ENOUGH | {"OPENCLAW_KUBERNETES": "off"}, "OPENCLAW_ENGINES"),
        (ENOUGH | {"OPENCLAW_ENGINES": "nowhere"}, "OPENCLAW_ENGINES"),
        (ENOUGH | {"OPENCLAW_INTERNAL_PORT": "x"}, "OPENCLAW_INTERNAL_PORT"),
    ],
)
def test_fault_is_named(environ, named):
    with pytest.raises(ConfigError, match=named):
        Settings.from_environment(environ)


def test_secrets_are_not_shown():
    settings = Settings.from_environment(ENOUGH | {names.ENV_GATEWAY_API_KEY: "s3cret"})
    assert "t0ken" not in repr(settings) and "s3cret" not in repr(settings)


@pytest.fixture
def _own_logging():
    """The process configures logging for good; the tests after this one have their own."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("_own_logging")
def test_process_with_a_faulty_configuration_exits_2(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv(names.ENV_CONFIG, str(tmp_path / "absent.json"))
    assert entry.main() == 2
    assert "absent.json" in capsys.readouterr().err
