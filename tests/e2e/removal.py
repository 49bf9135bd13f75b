"""Takes a test's training away: its pods would take the next test's memory."""

from contextlib import suppress

from examples.quickstart.commands import Cluster, StepError
from openclaw_core import names


async def remove(cluster: Cluster, namespace: str) -> None:
    """Delete the training, wait for the end of its pods, and leave the rest of the namespace to the API server.

    That one looks again only after half of the longest grace period it found, long after the last pod has gone.
    """
    within = ("-n", namespace)
    with suppress(StepError):
        await cluster.run_kubectl(*within, "delete", names.PLURAL, "--all", "--wait=false")
        gone = ("wait", "pod", "--for=delete", "-l", names.LABEL_TRAINING, "--timeout=150s")
        await cluster.run_kubectl(*within, *gone, timeout_sec=170)
    with suppress(StepError):
        await cluster.run_kubectl("delete", "namespace", namespace, "--ignore-not-found", "--wait=false")
