"""Cluster DNS as a Deployment labelled like everyone's (`k8s-app: kube-dns`), so NetworkPolicies can name it."""

import hashlib
from typing import Any

from openclaw_cluster import addresses

LABELS = {"k8s-app": "kube-dns"}
NAMESPACE = "kube-system"
COREFILE_HASH = "openclaw.dev/corefile"
"""Annotation of the pods, so that a changed Corefile rolls them."""

COREFILE = f"""\
{addresses.DNS_DOMAIN}:53 in-addr.arpa:53 ip6.arpa:53 {{
    errors
    health :8080 {{
        lameduck 1s
    }}
    ready :8181
    kubernetes {addresses.DNS_DOMAIN} in-addr.arpa ip6.arpa {{
        pods insecure
        ttl 5
    }}
    prometheus :9153
    cache 5
    loadbalance
}}
.:53 {{
    errors
    template ANY ANY . {{
        rcode NXDOMAIN
    }}
}}
"""
"""The last word is NXDOMAIN rather than a forwarder: pods have no way out, and a silent server would make every
lookup of a foreign name hang for its whole timeout."""


def manifests(image: str) -> list[dict[str, Any]]:
    return [_service_account(), _role(), _binding(), _config_map(), _deployment(image), _service()]


def _meta(name: str, namespaced: bool = True) -> dict[str, Any]:
    return {"name": name, "labels": LABELS} | ({"namespace": NAMESPACE} if namespaced else {})


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _service_account() -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _meta("coredns")}


def _role() -> dict[str, Any]:
    read = ["list", "watch"]
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": _meta("system:coredns", namespaced=False),
        "rules": [
            {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": read},
            {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": read},
        ],
    }


def _binding() -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": _meta("system:coredns", namespaced=False),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:coredns"},
        "subjects": [{"kind": "ServiceAccount", "name": "coredns", "namespace": NAMESPACE}],
    }


def _config_map() -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _meta("coredns"), "data": {"Corefile": COREFILE}}


def _deployment(image: str) -> dict[str, Any]:
    container = {
        "name": "coredns",
        "image": image,
        "imagePullPolicy": "Never",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "ports": [
            {"name": "dns", "containerPort": 53, "protocol": "UDP"},
            {"name": "dns-tcp", "containerPort": 53, "protocol": "TCP"},
        ],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
        "livenessProbe": {"httpGet": {"path": "/health", "port": 8080}, "failureThreshold": 5},
        "resources": {"requests": {"cpu": "20m", "memory": "30Mi"}, "limits": {"memory": "200Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": True}],
    }
    pod = {
        "serviceAccountName": "coredns",
        "priorityClassName": "system-cluster-critical",
        "dnsPolicy": "Default",
        "terminationGracePeriodSeconds": 5,
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": "coredns"}}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _meta("coredns"),
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS, "annotations": {COREFILE_HASH: _hash(COREFILE)}}, "spec": pod},
        },
    }


def _service() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _meta("kube-dns"),
        "spec": {
            "clusterIP": addresses.DNS_SERVICE_IP,
            "selector": LABELS,
            "ports": [
                {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": "dns"},
                {"name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": "dns-tcp"},
            ],
        },
    }
