"""The host's side of the pod network: the bridge, forwarding, and the route that keeps Service addresses at home."""

import json
from pathlib import Path

from openclaw_cluster import addresses, shell
from openclaw_cluster.layout import Layout

SETTINGS = {
    "net.ipv4.ip_forward": "1",
    # Answers of a pod on the same bridge must pass the tables that translate Service addresses.
    "net.bridge.bridge-nf-call-iptables": "1",
    # Every kubelet, containerd and Python watcher takes some; the kernel's default is 128.
    "fs.inotify.max_user_instances": "1024",
}


def up(layout: Layout) -> None:
    shell.run(["modprobe", "br_netfilter"], check=False)
    _remember(layout)
    for key, value in SETTINGS.items():
        if (path := _path(key)).exists() and path.read_text().strip() != value:
            path.write_text(value)
    if addresses.BRIDGE not in _links():
        shell.run(["ip", "link", "add", addresses.BRIDGE, "type", "bridge"])
    shell.run(["ip", "address", "replace", addresses.NODE_IP_WITH_PREFIX, "dev", addresses.BRIDGE])
    shell.run(["ip", "link", "set", addresses.BRIDGE, "up"])
    # A Service address is translated on the way out, but only if there is a way: loopback, so it never leaves.
    shell.run(["ip", "route", "replace", addresses.SERVICE_CIDR, "dev", "lo", "src", addresses.NODE_IP])


def down(layout: Layout) -> None:
    shell.run(["ip", "route", "delete", addresses.SERVICE_CIDR, "dev", "lo"], check=False)
    for link in _links(master=addresses.BRIDGE):
        shell.run(["ip", "link", "delete", link], check=False)
    shell.run(["ip", "link", "delete", addresses.BRIDGE], check=False)
    if layout.before.exists():
        for key, value in json.loads(layout.before.read_text()).items():
            _path(key).write_text(value)
        layout.before.unlink()


def leftovers() -> list[str]:
    routes = shell.run(["ip", "route", "show", addresses.SERVICE_CIDR]).strip()
    links = [addresses.BRIDGE] if addresses.BRIDGE in _links() else []
    return [f"link {name}" for name in links] + ([f"route {routes}"] if routes else [])


def _remember(layout: Layout) -> None:
    """Only the values before the first `up` count; a second one would remember our own."""
    if not layout.before.exists():
        values = {key: _path(key).read_text().strip() for key in SETTINGS if _path(key).exists()}
        shell.write_if_changed(layout.before, json.dumps(values))


def _links(master: str | None = None) -> list[str]:
    selection = ["master", master] if master else []
    output = shell.run(["ip", "-json", "link", "show", *selection], check=False)
    return [link["ifname"] for link in json.loads(output or "[]") if link]


def _path(key: str) -> Path:
    # Only the dots separate: `bridge-nf-call-iptables` has none.
    return Path("/proc/sys") / key.replace(".", "/")
