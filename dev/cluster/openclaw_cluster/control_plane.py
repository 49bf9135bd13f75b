"""The flags of etcd, the API server, the controller manager and the scheduler. Pure: paths in, processes out."""

from openclaw_cluster import addresses
from openclaw_cluster.layout import Layout
from openclaw_cluster.processes import Process

ETCD_URL = f"https://127.0.0.1:{addresses.ETCD_PORT}"
ETCD_PEER_URL = f"http://127.0.0.1:{addresses.ETCD_PEER_PORT}"


def flags(**values: object) -> tuple[str, ...]:
    return tuple(f"--{key.replace('_', '-')}={value}" for key, value in values.items())


def etcd(layout: Layout) -> Process:
    arguments = flags(
        name=addresses.NODE_NAME,
        data_dir=layout.etcd,
        listen_client_urls=ETCD_URL,
        advertise_client_urls=ETCD_URL,
        listen_peer_urls=ETCD_PEER_URL,
        initial_advertise_peer_urls=ETCD_PEER_URL,
        initial_cluster=f"{addresses.NODE_NAME}={ETCD_PEER_URL}",
        client_cert_auth="true",
        trusted_ca_file=layout.pki / "etcd-ca.crt",
        cert_file=layout.pki / "etcd.crt",
        key_file=layout.pki / "etcd.key",
        quota_backend_bytes=4 << 30,
        log_level="warn",
        logger="zap",
    )
    return Process("etcd", ("etcd", *arguments), ready=f"tcp:127.0.0.1:{addresses.ETCD_PORT}")


def apiserver(layout: Layout) -> Process:
    pki = layout.pki
    arguments = flags(
        bind_address=addresses.NODE_IP,
        advertise_address=addresses.NODE_IP,
        secure_port=addresses.API_PORT,
        etcd_servers=ETCD_URL,
        etcd_cafile=pki / "etcd-ca.crt",
        etcd_certfile=pki / "etcd-client.crt",
        etcd_keyfile=pki / "etcd-client.key",
        tls_cert_file=pki / "apiserver.crt",
        tls_private_key_file=pki / "apiserver.key",
        client_ca_file=pki / "ca.crt",
        kubelet_certificate_authority=pki / "ca.crt",
        kubelet_client_certificate=pki / "apiserver-kubelet-client.crt",
        kubelet_client_key=pki / "apiserver-kubelet-client.key",
        kubelet_preferred_address_types="InternalIP",
        requestheader_client_ca_file=pki / "front-proxy-ca.crt",
        requestheader_allowed_names="front-proxy-client",
        requestheader_username_headers="X-Remote-User",
        requestheader_group_headers="X-Remote-Group",
        requestheader_extra_headers_prefix="X-Remote-Extra-",
        proxy_client_cert_file=pki / "front-proxy-client.crt",
        proxy_client_key_file=pki / "front-proxy-client.key",
        service_account_issuer=f"https://kubernetes.default.svc.{addresses.DNS_DOMAIN}",
        service_account_key_file=pki / "service-account.key",
        service_account_signing_key_file=pki / "service-account.key",
        service_cluster_ip_range=addresses.SERVICE_CIDR,
        authorization_mode="Node,RBAC",
        enable_admission_plugins="NodeRestriction",
        allow_privileged="true",
        # It asks the watch cache for progress that etcd 3.4 does not report: errors all day, a stop that hangs.
        feature_gates="SizeBasedListCostEstimate=false",
        # It waits this long for open watches to end; a cluster of one person need not be polite.
        shutdown_delay_duration="0s",
        shutdown_watch_termination_grace_period="0s",
    )
    # It stops listening at once but then waits for idle connections; all it knows is in etcd, so it may be killed.
    return Process(
        "kube-apiserver",
        (_tool(layout, "kube-apiserver"), *arguments),
        ready=f"https:{addresses.API_URL}/readyz",
        stop_sec=3,
    )


def controller_manager(layout: Layout) -> Process:
    pki = layout.pki
    kubeconfig = pki / "kube-controller-manager.kubeconfig"
    arguments = flags(
        bind_address="127.0.0.1",
        kubeconfig=kubeconfig,
        authentication_kubeconfig=kubeconfig,
        authorization_kubeconfig=kubeconfig,
        leader_elect="false",
        use_service_account_credentials="true",
        root_ca_file=pki / "ca.crt",
        cluster_signing_cert_file=pki / "ca.crt",
        cluster_signing_key_file=pki / "ca.key",
        service_account_private_key_file=pki / "service-account.key",
        service_cluster_ip_range=addresses.SERVICE_CIDR,
        cluster_cidr=addresses.POD_CIDR,
        allocate_node_cidrs="true",
        node_cidr_mask_size=addresses.POD_CIDR.split("/")[1],
    )
    return Process("kube-controller-manager", (_tool(layout, "kube-controller-manager"), *arguments))


def scheduler(layout: Layout) -> Process:
    kubeconfig = layout.pki / "kube-scheduler.kubeconfig"
    arguments = flags(
        bind_address="127.0.0.1",
        kubeconfig=kubeconfig,
        authentication_kubeconfig=kubeconfig,
        authorization_kubeconfig=kubeconfig,
        leader_elect="false",
    )
    return Process("kube-scheduler", (_tool(layout, "kube-scheduler"), *arguments))


def _tool(layout: Layout, name: str) -> str:
    return str(layout.tools / name)
