"""The process that makes and removes hostPath volumes; the supervisor runs it, `storage` decides for it.

It lists once a second rather than watching: two small requests on one machine, and no state to lose.
"""

import argparse
import http.client
import logging
import shutil
import time
from pathlib import Path

from openclaw_cluster import api, storage

PERIOD_SEC = 1.0
log = logging.getLogger("provisioner")


def main() -> None:
    parser = argparse.ArgumentParser(prog="openclaw_cluster.provisioner")
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--volumes", type=Path, required=True)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    client = api.Api(options.kubeconfig)
    while True:
        try:
            reconcile(client, options.volumes)
        except (api.ApiError, OSError, http.client.HTTPException) as error:
            log.warning("trying again: %s", error)
        time.sleep(PERIOD_SEC)


def reconcile(client: api.Api, root: Path) -> None:
    claims = client.get("/api/v1/persistentvolumeclaims")["items"]
    volumes = client.get("/api/v1/persistentvolumes")["items"]
    plan = storage.plan(claims, volumes, root)
    for volume in plan.create:
        directory = Path(volume["spec"]["hostPath"]["path"])
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o777)
        client.call("POST", "/api/v1/persistentvolumes", volume)
        log.info("made %s", directory)
    for volume in plan.remove:
        if found := storage.directory_of(volume, root):
            shutil.rmtree(found, ignore_errors=True)
        client.delete(f"/api/v1/persistentvolumes/{volume['metadata']['name']}")
        log.info("removed %s", found)


if __name__ == "__main__":
    main()
