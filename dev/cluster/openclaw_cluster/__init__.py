"""The embedded single-node Kubernetes that `make demo` and `make test` use when no other cluster is named.

`python -m openclaw_cluster up` is its one door. The package knows nothing of OpenClaw's own resources.
"""
