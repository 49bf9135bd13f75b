"""The clients' keys: who is let in, as whom, and how keys come and go while the gateway runs."""

import os

import anthropic
import openai
import pytest

from openclaw_core.config.components import ConfigError
from openclaw_gateway.errors import ApiError
from openclaw_gateway.keys import ANYBODY, DEFAULT, Keys
from tests.fakes.engine import FakeEngine
from tests.unit.gateway.running import config, conversation, running
from tests.unit.gateway.test_messages_route import client as anthropic_client

USER = conversation("Hi")


def bearer(key):
    return {"authorization": f"Bearer {key}"}


def mounted(directory, **keys):
    """The Secret as the kubelet mounts it: entries are links into a directory that is swapped as a whole."""
    version = directory / f"..v{len(list(directory.iterdir()))}"
    version.mkdir()
    for name, key in keys.items():
        (version / name).write_text(key)
    for path in directory.iterdir():
        if path.is_symlink() and path.name != "..data":
            path.unlink()
    link = directory / "..new"
    link.symlink_to(version.name)
    os.replace(link, directory / "..data")
    for name in keys:
        (directory / name).symlink_to(f"..data/{name}")
    return directory


def test_each_key_is_a_client_by_name_and_the_single_key_another(tmp_path):
    keys = Keys("single", mounted(tmp_path, alice="key-a\n", bob="key-b"))
    callers = [keys.caller(bearer(key)) for key in ("key-a", "key-b", "single")]
    assert [caller.name for caller in callers] == ["alice", "bob", DEFAULT]
    assert len({caller.owner for caller in callers}) == 3
    assert keys.caller({"x-api-key": "key-a"}) == callers[0]
    assert keys.caller(bearer("wrong") | {"x-api-key": "key-b"}) == callers[1]


@pytest.mark.parametrize(
    "headers", [{}, bearer("no"), {"x-api-key": ""}, {"authorization": "Basic key-a"}, bearer("alice")]
)
def test_everybody_else_is_refused(tmp_path, headers):
    with pytest.raises(ApiError) as refused:
        Keys(None, mounted(tmp_path, alice="key-a")).caller(headers)
    assert refused.value.status == 401


def test_without_keys_everybody_is_let_in_and_told_apart_by_what_they_send():
    keys = Keys()
    one, other, none = (keys.caller(headers) for headers in (bearer("x"), {"x-api-key": "y"}, {}))
    assert {one.name, other.name, none.name} == {ANYBODY}
    assert len({one.owner, other.owner, none.owner}) == 3


def test_keys_come_go_and_change_while_it_runs(tmp_path):
    keys = Keys(None, mounted(tmp_path, alice="key-a", bob="key-b"))
    before = keys.caller(bearer("key-a"))
    mounted(tmp_path, alice="key-a2", carol="key-c")
    keys.look()
    assert keys.caller(bearer("key-a2")) == before  # the same client: her sessions go on
    assert keys.caller(bearer("key-c")).name == "carol"
    for gone in ("key-a", "key-b"):
        with pytest.raises(ApiError):
            keys.caller(bearer(gone))


def test_directory_that_cannot_be_read_changes_nothing(tmp_path):
    (tmp_path / "keys").mkdir()
    directory = mounted(tmp_path / "keys", alice="key-a")
    keys = Keys(None, directory)
    directory.rename(tmp_path / "elsewhere")
    keys.look()
    assert keys.caller(bearer("key-a")).name == "alice"


def test_entry_nobody_can_mean_is_left_out_and_named_without_its_value(tmp_path, caplog):
    keys = Keys(None, mounted(tmp_path, alice="key-a", bob="<your key>"))
    with pytest.raises(ApiError):
        keys.caller(bearer("<your key>"))
    assert "bob" in caplog.text and "your key" not in caplog.text
    assert "key-a" not in repr(keys)


def test_secret_without_a_usable_entry_does_not_start(tmp_path):
    with pytest.raises(ConfigError, match="no client key"):
        Keys(None, mounted(tmp_path, bob=""))


async def test_clients_of_both_apis_are_let_in_by_their_keys_and_counted_by_name(tmp_path):
    named = config(policy_serving={"gateway": {"apiKeysSecretRef": {"name": "clients"}}})
    keys_dir = mounted(tmp_path, alice="key-a", bob="key-b")
    async with FakeEngine(reply="Hi") as engine, running(engine, gateway=named, client_keys_dir=keys_dir) as gateway:
        await gateway.client(key="key-a").chat.completions.create(model="p", messages=USER)
        claude = anthropic_client(gateway, api_key="key-b")
        await claude.messages.create(model="p", max_tokens=9, messages=USER)
        with pytest.raises(openai.AuthenticationError):
            await gateway.client(key="user-key").chat.completions.create(model="p", messages=USER)
        mounted(tmp_path, bob="key-b")
        gateway.parts.keys.look()
        with pytest.raises(openai.AuthenticationError):
            await gateway.client(key="key-a").chat.completions.create(model="p", messages=USER)
        with pytest.raises(anthropic.AuthenticationError):
            await anthropic_client(gateway, api_key="key-a").messages.create(model="p", max_tokens=9, messages=USER)
        async with gateway.http.get(f"{gateway.url}/metrics") as response:
            text = await response.text()
        assert 'openclawrl_gateway_requests_total{client="alice",path="/v1/chat/completions"} 1.0' in text
        assert 'openclawrl_gateway_requests_total{client="bob",path="/v1/messages"} 1.0' in text
        assert 'openclawrl_gateway_tokens_total{client="alice",kind="completion"} 3.0' in text
        assert "key-a" not in text and "key-b" not in text


async def test_two_clients_with_the_same_words_share_no_session(tmp_path):
    named = config(policy_serving={"gateway": {"apiKeysSecretRef": {"name": "clients"}}})
    keys_dir = mounted(tmp_path, alice="key-a", bob="key-b")
    async with FakeEngine(reply="Yes") as engine, running(engine, gateway=named, client_keys_dir=keys_dir) as gateway:
        await gateway.post(USER, headers=bearer("key-a"))
        await gateway.post(conversation("Hi", "Yes", "go on"), headers=bearer("key-b"))
        assert await gateway.judge() == []
        await gateway.post(conversation("Hi", "Yes", "go on"), headers=bearer("key-a"))
        assert len(await gateway.judge()) == 1
