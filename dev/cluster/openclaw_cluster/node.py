"""Configuration of containerd, the pod network, kubelet, kube-proxy and the policy enforcer. Pure builders.

Several settings exist because a container or small virtual machine is a poor node: no lowering of oom_score_adj,
cgroup v1, few inotify instances, a full-looking disk.
"""

import json
from typing import Any

import yaml

from openclaw_cluster import addresses, cgroups
from openclaw_cluster.control_plane import flags
from openclaw_cluster.layout import Layout
from openclaw_cluster.processes import Process

CNI_PLUGINS = "/usr/lib/cni"


def containerd_config(layout: Layout, pause_image: str) -> str:
    return f"""\
version = 2
root = "{layout.containerd}"
state = "{layout.run}/containerd"
oom_score = 0
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing"]

[grpc]
  address = "{layout.containerd_socket}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause_image}"
  # Or every sandbox dies where the process may not lower its oom_score_adj.
  restrict_oom_score_adj = true
  # As in every current runtime: a non-root process may bind port 53 or 80 inside its pod.
  enable_unprivileged_ports = true
  enable_unprivileged_icmp = true
  netns_mounts_under_state_dir = true
  max_concurrent_downloads = 4

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{CNI_PLUGINS}"
  conf_dir = "{layout.config}/cni"

[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "overlayfs"
  default_runtime_name = "runc"
  # The registry keeps the compressed layers; a second copy of torch's 3 GB is not wanted.
  discard_unpacked_layers = true

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
    SystemdCgroup = false

[plugins."io.containerd.grpc.v1.cri".registry]
  config_path = "{layout.config}/certs.d"
"""


def cni_config(layout: Layout) -> str:
    bridge: dict[str, Any] = {
        "type": "bridge",
        "bridge": addresses.BRIDGE,
        "isGateway": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": str(layout.run / "addresses"),
            "ranges": [[{"subnet": addresses.POD_CIDR, "gateway": addresses.NODE_IP}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    network = {"cniVersion": "0.4.0", "name": "openclaw", "plugins": [bridge, portmap]}
    return json.dumps(network, indent=2)


def kubelet_config(layout: Layout) -> str:
    config: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": addresses.NODE_IP,
        "port": addresses.KUBELET_PORT,
        "healthzBindAddress": "127.0.0.1",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(layout.pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(layout.pki / "kubelet.crt"),
        "tlsPrivateKeyFile": str(layout.pki / "kubelet.key"),
        "clusterDNS": [addresses.DNS_SERVICE_IP],
        "clusterDomain": addresses.DNS_DOMAIN,
        # The host's search domains and servers are nothing to a pod: the cluster resolves only its own names.
        "resolvConf": "",
        "containerRuntimeEndpoint": f"unix://{layout.containerd_socket}",
        "runtimeRequestTimeout": "15m",
        "serializeImagePulls": False,
        "registryPullQPS": 0,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroups.NAME}",
        "failCgroupV1": False,
        "failSwapOn": False,
        # Lowering it needs CAP_SYS_RESOURCE, which a container as a host lacks.
        "oomScoreAdj": 0,
        "makeIPTablesUtilChains": False,
        "podLogsDir": str(layout.logs / "pods"),
        "volumePluginDir": str(layout.run / "volume-plugins"),
        # An image is only in the local registry, and the person looks after the disk.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "nodefs.inodesFree": "1%",
            "imagefs.available": "1%",
        },
        # How soon a pod's mounted Secrets and ConfigMaps follow an edit; a minute is long for who watches it.
        "syncFrequency": "20s",
        "nodeStatusUpdateFrequency": "5s",
        "logging": {"verbosity": 1},
    }
    return yaml.safe_dump(config, sort_keys=False)


def kube_proxy_config(layout: Layout) -> str:
    config: dict[str, Any] = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clusterCIDR": addresses.POD_CIDR,
        "clientConnection": {"kubeconfig": str(layout.pki / "kube-proxy.kubeconfig")},
        "hostnameOverride": addresses.NODE_NAME,
        "bindAddress": addresses.NODE_IP,
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        "oomScoreAdj": 0,
        # The host's own limits stay as they are.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "nftables": {"minSyncPeriod": "100ms", "syncPeriod": "30s"},
    }
    return yaml.safe_dump(config, sort_keys=False)


def containerd(layout: Layout) -> Process:
    arguments = ("containerd", "--config", str(layout.config / "containerd.toml"), "--log-level", "warn")
    return Process("containerd", arguments, ready=f"unix:{layout.containerd_socket}", drains_pods=True)


def kubelet(layout: Layout) -> Process:
    arguments = flags(
        config=layout.config / "kubelet.yaml",
        kubeconfig=layout.pki / "kubelet.kubeconfig",
        hostname_override=addresses.NODE_NAME,
        node_ip=addresses.NODE_IP,
        root_dir=layout.kubelet,
    )
    return Process("kubelet", (str(layout.tools / "kubelet"), *arguments))


def kube_proxy(layout: Layout) -> Process:
    return Process(
        "kube-proxy",
        (str(layout.tools / "kube-proxy"), f"--config={layout.config / 'kube-proxy.yaml'}"),
    )


def kube_router(layout: Layout) -> Process:
    """Enforces NetworkPolicy, which nothing above does; routing and Services are not its business here."""
    arguments = flags(
        run_router="false",
        run_firewall="true",
        run_service_proxy="false",
        run_loadbalancer="false",
        kubeconfig=layout.pki / "kube-router.kubeconfig",
        hostname_override=addresses.NODE_NAME,
        service_cluster_ip_range=addresses.SERVICE_CIDR,
        iptables_sync_period="1m",
        health_port=0,
        metrics_port=0,
        v=1,
    )
    return Process("kube-router", (str(layout.tools / "kube-router"), *arguments))
