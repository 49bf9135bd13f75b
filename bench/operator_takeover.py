"""How soon a standby leads: `python bench/operator_takeover.py --times 3`, one line of JSON last.

    two operator processes, one control plane ─▶ kill -9 or SIGTERM the leader ─▶ seconds until the other one leads

The aims, on a machine with a core to spare: 20 s after a crash (the Lease lasts 15 s), 3 s after a clean stop.
"""

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from openclaw_cluster import bare
from tests.cluster.conftest import install_crd
from tests.cluster.lab import kubectl, until
from tests.cluster.own_operator import OwnOperator

_SETTLE_SEC = 5.0
"""The standby must have seen the leader renew before it can count its silence."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=3)
    times = parser.parse_args().times
    with tempfile.TemporaryDirectory(prefix="takeover-") as folder, bare.control_plane(Path(folder)) as plane:
        install_crd(plane.kubeconfig)
        kubectl("create", "namespace", "ops", kubeconfig=plane.kubeconfig)
        crash = [takeover(plane, signal.SIGKILL) for _ in range(times)]
        stop = [takeover(plane, signal.SIGTERM) for _ in range(times)]
    figures = {"crash_s_max": max(crash), "crash_s_median": statistics.median(crash), "stop_s_max": max(stop)}
    figures |= {"stop_s_median": statistics.median(stop), "load_1min": round(os.getloadavg()[0], 1)}
    sys.stdout.write(json.dumps(figures) + "\n")
    return 0


def takeover(plane: bare.Bare, number: signal.Signals) -> float:
    """Seconds from the signal to the leader until the standby leads."""
    leader, other = (OwnOperator(plane.kubeconfig, plane.folder, f"operator-{name}") for name in "ab")
    leader.start()
    try:
        leader.until_leading(60)
        other.start()
        until("the standby answers", lambda: other.get("/readyz")[0] == 200, 60)
        time.sleep(_SETTLE_SEC)
        if leader.process is not None:
            leader.process.send_signal(number)
        return round(other.until_leading(120), 2)
    finally:
        for operator in (leader, other):
            operator.kill(signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
