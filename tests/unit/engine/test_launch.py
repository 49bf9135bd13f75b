"""The admin key on its way into the SGLang process."""

import io
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from openclaw_engine import launch


def test_key_is_the_first_line_of_standard_input() -> None:
    assert launch.read_key(io.StringIO("k3y\nmore")) == "k3y"


@pytest.mark.parametrize("given", ["", "\n", "  \n"])
def test_missing_key_ends_the_process(given: str) -> None:
    with pytest.raises(SystemExit, match="no admin key"):
        launch.read_key(io.StringIO(given))


class Refusing(BaseHTTPRequestHandler):
    """SGLang's own answer to orders: 401 without the key."""

    orders: list[str]

    def do_POST(self) -> None:
        known = self.headers.get("Authorization") == "Bearer k3y"
        self.orders.append(self.path)
        self.send_response(200 if known else 401)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return None


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    Refusing.orders = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield found
        found.shutdown()


def test_sglang_is_frozen_with_the_key(server: ThreadingHTTPServer, caplog: pytest.LogCaptureFixture) -> None:
    launch.freeze(f"http://127.0.0.1:{server.server_port}", "k3y")
    assert (Refusing.orders, caplog.records) == (["/freeze_gc"], [])


@pytest.mark.parametrize("port", [None, 9])
def test_sglang_that_is_not_frozen_serves_on_and_says_so(
    server: ThreadingHTTPServer, caplog: pytest.LogCaptureFixture, port: int | None
) -> None:
    launch.freeze(f"http://127.0.0.1:{port or server.server_port}", "another")
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "another" not in caplog.text
