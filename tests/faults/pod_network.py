"""Addresses for processes that stand for pods: a network namespace each, joined by a bridge, cut by nft on its veth.

    bridge ocm0 10.213.7.1 ──veth──▶ namespace ocm-<name> 10.213.7.<n>

The API server listens on this machine's 127.0.0.1 and its certificate says so; inside a namespace that very address is
led over the bridge to a relay in front of it. Needs root, `ip` and `nft`; everything made here goes in `close`.
"""

import asyncio
import contextlib
import fcntl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BRIDGE, SUBNET = "ocm0", "10.213.7"
TABLE = "ocm_faults"
LOCK = Path("/run/lock/openclaw-faults")


def run(*line: str, check: bool = True) -> None:
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(line)}: {done.stderr.strip()}")


def hook(table: str, veth: str) -> None:
    """A chain of this netdev table for what comes out of the veth."""
    run("nft", "add", "chain", "netdev", table, veth, f"{{ type filter hook ingress device {veth} priority 0 ; }}")


def drop(table: str, veth: str, match: str = "") -> None:
    """Drop it: all of it, or what `match` (nft's words) says."""
    run("nft", "add", "rule", "netdev", table, veth, *match.split(), "drop")


class PodNetwork:
    """`add` a namespace, then `cut` and `join` it."""

    def __init__(self, api_port: int) -> None:
        self._api_port = api_port

    def open(self) -> None:
        self.close()
        run("ip", "link", "add", BRIDGE, "type", "bridge")
        run("ip", "addr", "add", f"{SUBNET}.1/24", "dev", BRIDGE)
        run("ip", "link", "set", BRIDGE, "up")
        run("nft", "add", "table", "netdev", TABLE)

    def close(self) -> None:
        run("nft", "delete", "table", "netdev", TABLE, check=False)
        for space in _listed("ip", "-o", "netns"):
            run("ip", "netns", "del", space, check=False)
        for link in _listed("ip", "-br", "link"):
            run("ip", "link", "del", link.partition("@")[0], check=False)

    def add(self, name: str, number: int) -> str:
        """The address of the new namespace."""
        space, veth, address = _namespace(name), _veth(name), f"{SUBNET}.{number}"
        run("ip", "netns", "del", space, check=False)
        run("ip", "netns", "add", space)
        run("ip", "link", "add", veth, "type", "veth", "peer", "name", "eth0", "netns", space)
        run("ip", "link", "set", veth, "master", BRIDGE, "up")
        inside = ("ip", "-n", space)
        run(*inside, "link", "set", "lo", "up")
        run(*inside, "addr", "add", f"{address}/24", "dev", "eth0")
        run(*inside, "link", "set", "eth0", "up")
        run(*inside, "route", "add", "default", "via", f"{SUBNET}.1")
        self._lead_to_api(space)
        hook(TABLE, veth)
        return address

    def _lead_to_api(self, space: str) -> None:
        inside = ("ip", "netns", "exec", space)
        run(*inside, "sysctl", "-qw", "net.ipv4.conf.all.route_localnet=1")
        run(*inside, "nft", "add", "table", "ip", "api")
        run(*inside, "nft", "add", "chain", "ip", "api", "out", "{ type nat hook output priority -100 ; }")
        run(*inside, "nft", "add", "chain", "ip", "api", "post", "{ type nat hook postrouting priority 100 ; }")
        to = f"ip daddr 127.0.0.1 tcp dport {self._api_port} dnat to {SUBNET}.1:{self._api_port}"
        run(*inside, "nft", "add", "rule", "ip", "api", "out", *to.split())
        run(*inside, "nft", "add", "rule", "ip", "api", "post", *f"ip daddr {SUBNET}.1 masquerade".split())

    def cut(self, name: str, match: str = "") -> None:
        """Drop what comes out of the namespace: all of it, or what `match` (nft's words) says."""
        drop(TABLE, _veth(name), match)

    def join(self, name: str) -> None:
        run("nft", "flush", "chain", "netdev", TABLE, _veth(name))

    def inside(self, name: str) -> list[str]:
        """Put before a command line to run it there."""
        return ["ip", "netns", "exec", _namespace(name)]


def _listed(*line: str) -> list[str]:
    """First words of a command's output that are names of ours, a killed run's too."""
    text = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    return [words[0] for words in map(str.split, text.splitlines()) if words and words[0].startswith(BRIDGE[:3])]


@contextmanager
def pod_network(api_port: int) -> Iterator[PodNetwork]:
    """RuntimeError where another one is up: its names are this machine's."""
    network = PodNetwork(api_port)
    with LOCK.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RuntimeError(f"another bed of faults is up on this machine ({LOCK} is locked): wait for it") from None
        network.open()
        try:
            yield network
        finally:
            network.close()


async def relay(port: int) -> None:
    """Pass connections to the bridge's address on to the API server on 127.0.0.1; until cancelled."""

    open_now: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(_pass_on(reader, writer, port))
        open_now.add(task)
        task.add_done_callback(open_now.discard)

    server = await asyncio.start_server(accept, f"{SUBNET}.1", port)
    try:
        async with server:
            await server.serve_forever()
    finally:
        for task in open_now:
            task.cancel()
        await asyncio.gather(*open_now, return_exceptions=True)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
    """One connection, both ways, until either end is gone."""
    with contextlib.closing(writer), contextlib.suppress(OSError):
        upstream, downstream = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.closing(downstream):
            await asyncio.gather(_pump(reader, downstream), _pump(upstream, writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


def _namespace(name: str) -> str:
    return f"ocm-{name}"


def _veth(name: str) -> str:
    return f"ocm{name}"[:15]
