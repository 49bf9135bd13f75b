"""Kill -9 the operator at random moments while trainings come, change and go; compare with a run left in peace.

    python tests/faults/operator_kill.py --kills 50      last line: one JSON object with `differences`

Both runs apply the same random history (same seed) on control planes of their own, with pods on paper. What is compared
is every object of every training: kind, name, labels, owner, data and spec, without what the API server draws anew each
time (addresses, uids, volume names, tokens). Also asserted: no training carries a finalizer, and all reach Running.
"""

import argparse
import json
import random
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from openclaw_cluster import bare
from openclaw_core import names
from tests.cluster.conftest import install_crd
from tests.cluster.lab import Lab, kubectl, training
from tests.cluster.own_operator import OwnOperator, PaperKubelet

KINDS = "oct,deploy,sts,svc,cm,sa,role,rolebinding,pvc,pdb,netpol,lease,secret"
NAMESPACE = "trainings"
_DRAWN = frozenset({"clusterIP", "clusterIPs", "volumeName", "nodeName", "acquireTime", "renewTime", "holderIdentity"})
_LATE_STARTS = 5
Object = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--trainings", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    history = make_history(options.trainings, random.Random(options.seed))
    calm = run(history, kills=0, seed=options.seed)
    shaken = run(history, kills=options.kills, seed=options.seed)
    differing = sorted(name for name in calm.keys() | shaken.keys() if calm.get(name) != shaken.get(name))
    for name in differing[:20]:
        sys.stderr.write(f"{name}\n  calm   {json.dumps(calm.get(name))}\n  shaken {json.dumps(shaken.get(name))}\n")
    figures = {"kills": options.kills, "trainings": options.trainings, "objects": len(calm)}
    sys.stdout.write(json.dumps(figures | {"differences": len(differing)}) + "\n")
    return 1 if differing else 0


def make_history(trainings: int, draw: random.Random) -> list[tuple[str, str, Object]]:
    """(verb, training, spec): each is created, edited a few times, and every fourth goes again."""
    edits: list[Object] = [
        {"rewardJudging": {"judgeConcurrency": 7}},
        {"policyServing": {"replicas": 2}},
        {"policyTraining": {"learningRate": 0.5}},
        {"environmentHosting": {"enabled": True}},
        {"environmentHosting": {"enabled": False}},
        {"policyTraining": {"nodes": 2}},
        {"policyTraining": {"nodes": 1}},
        {"suspend": True},
        {"suspend": False},
    ]
    steps = []
    for number in range(trainings):
        name = f"t{number}"
        chosen = [("edit", name, edit) for edit in draw.sample(edits, 3)] + [("edit", name, {"suspend": False})]
        steps.append([("create", name, {}), *chosen, *([("delete", name, {})] if number % 4 == 3 else [])])
    mixed = []
    while any(steps):
        mixed.append(draw.choice([mine for mine in steps if mine]).pop(0))
    return mixed


def run(history: list[tuple[str, str, Object]], *, kills: int, seed: int) -> dict[str, Object]:
    """Apply the history, with so many kills on the way; the objects once all is quiet."""
    with (
        tempfile.TemporaryDirectory(prefix="operator-kill-") as folder,
        bare.control_plane(Path(folder), bare.Options(controller_qps=200)) as plane,
        PaperKubelet(plane),
    ):
        install_crd(plane.kubeconfig)
        lab = Lab(NAMESPACE, plane.kubeconfig)  # the same in both runs: revisions are hashes over it too
        for namespace in ("ops", NAMESPACE):
            kubectl("create", "namespace", namespace, kubeconfig=plane.kubeconfig)
        operator = OwnOperator(plane.kubeconfig, plane.folder)
        keeper = Keeper(plane, operator, kills, random.Random(seed + 1))
        operator.start()
        operator.until_leading(120)
        keeper.start()
        for verb, name, spec in history:
            act(lab, verb, name, spec)
            time.sleep(0.2 if kills else 0.05)
        while keeper.left and keeper.is_alive():
            time.sleep(0.2)
        if keeper.left:
            raise RuntimeError(f"the operator does not start; see {operator.log}")
        try:
            settle(lab)
            return {
                f"{item['kind']}/{item['metadata']['name']}": plain(item)
                for item in lab.items(KINDS)
                if names.LABEL_TRAINING in (item["metadata"].get("labels") or {}) or item["kind"] == names.KIND
            }
        finally:
            keeper.stopped.set()
            keeper.join(150)
            operator.kill()


class Keeper(threading.Thread):
    """The operator's kubelet: starts it again whenever it has ended, and kills it at random moments so many times.

    A lead that could not be renewed on a busy machine ends the process as well; that is no kill and no difference.
    """

    def __init__(self, plane: bare.Bare, operator: OwnOperator, kills: int, draw: random.Random) -> None:
        super().__init__(daemon=True)
        self._plane, self._operator, self.left, self._draw = plane, operator, kills, draw
        self.stopped = threading.Event()
        self.late = 0

    def run(self) -> None:
        while not self.stopped.is_set():
            if not self._operator.alive():
                self._begin()
            elif self.left:
                time.sleep(self._draw.uniform(0.05, 1.5))
                self._operator.kill(signal.SIGKILL)
                self.left -= 1
                sys.stderr.write(f"\rkills left: {self.left} ")
            time.sleep(0.1)

    def _begin(self) -> None:
        # 15 s until a dead leader's Lease expires are no part of the question, 50 times over.
        free = json.dumps({"spec": {"holderIdentity": ""}})
        words = ("-n", "ops", "patch", "lease", "openclaw-operator", "--type=merge", "-p", free)
        kubectl(*words, kubeconfig=self._plane.kubeconfig)
        self._operator.start()
        try:
            self._operator.until_leading(120)
        except AssertionError:
            # It lost the lead again while the machine was busy, or takes longer than that: from the beginning.
            self._operator.kill(signal.SIGKILL)
            self.late += 1
            if self.late > _LATE_STARTS:
                raise


def act(lab: Lab, verb: str, name: str, spec: Object) -> None:
    if verb == "create":
        lab.apply(training(name))
    elif verb == "edit":
        lab.patch(names.PLURAL, name, {"spec": spec})
    else:
        lab.run("delete", names.PLURAL, name)


def settle(lab: Lab) -> None:
    """Until every training runs, the deleted ones' children are gone, and nothing has moved for 5 s."""
    deadline, before, since = time.monotonic() + 300, "", time.monotonic()
    while time.monotonic() < deadline:
        items = lab.items(KINDS)
        trainings = [item for item in items if item["kind"] == names.KIND]
        now = json.dumps([[item["metadata"]["uid"], item["metadata"]["resourceVersion"]] for item in items])
        running = all((item.get("status") or {}).get("phase") == "Running" for item in trainings)
        alive = {item["metadata"]["name"] for item in trainings}
        left = [
            item for item in items if (item["metadata"].get("labels") or {}).get(names.LABEL_TRAINING, "x") in alive
        ]
        owned = [item for item in items if names.LABEL_TRAINING in (item["metadata"].get("labels") or {})]
        if now != before or not running or len(left) < len(owned):
            before, since = now, time.monotonic()
        elif time.monotonic() - since > 5:
            return
        time.sleep(0.5)
    raise TimeoutError("the trainings did not settle within 300 s")


def plain(item: Object) -> Object:
    """An object without what differs from run to run anyway."""
    metadata = item["metadata"]
    if metadata.get("finalizers") and item["kind"] == names.KIND:
        raise AssertionError(f"training {metadata['name']} carries finalizers {metadata['finalizers']}")
    kept: Object = {
        "labels": metadata.get("labels"),
        "owners": [owner["name"] for owner in metadata.get("ownerReferences") or []],
        "spec": _undrawn(item.get("spec")),
        "rules": item.get("rules"),
        "data": sorted(item["data"]) if item["kind"] == "Secret" else item.get("data"),
        "phase": (item.get("status") or {}).get("phase") if item["kind"] == names.KIND else None,
    }
    return kept


def _undrawn(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _undrawn(inner) for key, inner in value.items() if key not in _DRAWN}
    return [_undrawn(inner) for inner in value] if isinstance(value, list) else value


if __name__ == "__main__":
    sys.exit(main())
