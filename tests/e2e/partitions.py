"""Pods of the embedded cluster cut off: what comes out of their veths is dropped on the node, as in the fault matrix.

`kubectl exec` and port-forwards begin inside the pod and reach it all the same. Needs root and the node's processes.
"""

import re
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.e2e import kills
from tests.faults.pod_network import drop, hook, run

_TABLE = "openclaw_e2e"


@contextmanager
def cut_off(container_ids: Sequence[str], match: str = "") -> Iterator[None]:
    """For as long as the block: the pods of these containers, or of what they say only `match` (nft's words)."""
    veths = {_veth(kills.first_process(container)) for container in container_ids}
    run("nft", "delete", "table", "netdev", _TABLE, check=False)  # a killed run's
    try:
        run("nft", "add", "table", "netdev", _TABLE)
        for veth in veths:
            hook(_TABLE, veth)
            drop(_TABLE, veth, match)
        yield
    finally:
        run("nft", "delete", "table", "netdev", _TABLE)


def _veth(process: int) -> str:
    """The node's end of the pod's eth0: the pod's own shows its number, as in `2: eth0@if27:`."""
    line = ("nsenter", "--target", str(process), "--net", "ip", "-o", "link", "show", "eth0")
    shown = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    peer = re.search(r"eth0@if(\d+)", shown)
    assert peer is not None, f"eth0 of process {process} is no veth: {shown}"
    return socket.if_indextoname(int(peer.group(1)))
