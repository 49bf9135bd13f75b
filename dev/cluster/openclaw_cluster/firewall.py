"""Removes what kube-proxy, kube-router and the port mapper put into the host's packet filter, and only that."""

import json

from openclaw_cluster import shell
from openclaw_cluster.layout import Layout

OURS = ("KUBE-", "CNI-")
"""Chains with these beginnings, and every rule that names one."""
PROXY_TABLES = ("ip kube-proxy", "ip6 kube-proxy")
FAMILIES = ("iptables", "ip6tables")


def remember(layout: Layout) -> None:
    """Note which tables exist before ours; rereading later would count our own."""
    path = layout.run / "tables.json"
    if not path.exists():
        shell.write_if_changed(path, json.dumps(_tables()))


def without_ours(saved: str) -> str:
    """`iptables-save` output minus our chains, the jumps to them and their rules."""
    return "".join(line for line in saved.splitlines(keepends=True) if not any(mark in line for mark in OURS))


def clean(layout: Layout) -> None:
    for table in PROXY_TABLES:
        shell.run(["nft", "delete", "table", *table.split()], check=False)
    for family in FAMILIES:
        saved = shell.run([f"{family}-save"], check=False)
        if (kept := without_ours(saved)) != saved:
            shell.run([f"{family}-restore"], stdin=kept)
    for name in _sets():
        shell.run(["ipset", "destroy", name], check=False)
    path = layout.run / "tables.json"
    if path.exists():
        for table in _tables():
            if table not in json.loads(path.read_text()) and not _has_rules(table):
                shell.run(["nft", "delete", "table", *table.split()], check=False)
        path.unlink()


def leftovers() -> list[str]:
    found = [f"nft table {table}" for table in _tables() if table in PROXY_TABLES]
    for family in FAMILIES:
        saved = shell.run([f"{family}-save"], check=False)
        found += [f"{family} rules with KUBE- or CNI-"] if without_ours(saved) != saved else []
    return found + [f"ipset {name}" for name in _sets()]


def _tables() -> list[str]:
    listed = shell.run(["nft", "list", "tables"], check=False)
    return [line.removeprefix("table ") for line in listed.splitlines() if line.startswith("table ")]


def _has_rules(table: str) -> bool:
    document = json.loads(shell.run(["nft", "-j", "list", "table", *table.split()], check=False) or "{}")
    return any("rule" in item for item in document.get("nftables", []))


def _sets() -> list[str]:
    names = shell.run(["ipset", "list", "-name"], check=False).split()
    return [name for name in names if name.startswith(("KUBE-", "inet6:KUBE-"))]
