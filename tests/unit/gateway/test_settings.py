"""What the gateway takes from its environment, and how it says what is wrong with it."""

import logging

import pytest

from openclaw_core import names
from openclaw_core.config.components import ConfigError
from openclaw_gateway import __main__ as entry
from openclaw_gateway import main
from openclaw_gateway.settings import Settings
from openclaw_gateway.store.databases import parse_url, schema_name
from tests.unit.gateway.running import config

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
    url = "postgresql://user:passw0rd@db/openclaw"
    settings = Settings.from_environment(ENOUGH | {names.ENV_GATEWAY_API_KEY: "s3cret", names.ENV_POSTGRES_URL: url})
    assert settings.postgres_url == url
    assert not [word for word in ("t0ken", "s3cret", "passw0rd") if word in repr(settings)]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (None, "is empty"),
        ("passw0rd", "is no URL"),
        ("mysql://u:passw0rd@db/x", "does not begin with postgresql://"),
        ("postgresql://u:passw0rd@db", "names no database"),
    ],
)
async def test_faulty_database_url_is_named_and_not_shown(url, said):
    setup = Settings.from_environment(ENOUGH | ({names.ENV_POSTGRES_URL: url} if url else {}))
    postgres = config(queue={"store": "postgres", "postgres": {"url_secret_ref": {"name": "db", "key": "url"}}})
    with pytest.raises(ConfigError, match=f"{names.ENV_POSTGRES_URL}.*{said}") as raised:
        async with main.gateway(postgres, setup):
            pass
    assert "passw0rd" not in str(raised.value)


@pytest.mark.parametrize(
    "url", ["postgres://u@h/d", "postgresql://u@h:1/d?sslmode=require", "postgresql+psycopg://u@h/d"]
)
def test_usual_spellings_of_a_database_url_are_understood(url):
    assert parse_url(url).drivername == "postgresql+psycopg"


def test_schemas_of_trainings_differ_and_fit():
    long = [schema_name("n" * 63, f"{'t' * 49}{letter}") for letter in "ab"]
    assert len({schema_name("a-b", "c"), schema_name("a", "b-c"), *long}) == 4
    assert all(len(name) <= 63 for name in long)


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
