"""Names, addresses and ports of the cluster, each in one place.

The node's address is the pod bridge's own, so certificates, etcd and kubeconfig stay valid when the machine moves
to another network or has none at all.
"""

NODE_NAME = "openclaw"
BRIDGE = "openclaw0"

POD_CIDR = "10.244.0.0/24"
NODE_IP = "10.244.0.1"
NODE_IP_WITH_PREFIX = f"{NODE_IP}/24"

SERVICE_CIDR = "10.96.0.0/16"
API_SERVICE_IP = "10.96.0.1"
DNS_SERVICE_IP = "10.96.0.10"
DNS_DOMAIN = "cluster.local"

API_PORT = 6443
API_URL = f"https://{NODE_IP}:{API_PORT}"
KUBELET_PORT = 10250
ETCD_PORT = 23790
ETCD_PEER_PORT = 23800
REGISTRY = "127.0.0.1:5055"
"""Where images are pushed and, by the same name, pulled."""
