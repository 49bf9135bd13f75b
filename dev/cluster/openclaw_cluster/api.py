"""The little of the Kubernetes API that the cluster itself needs: JSON with the administrator's certificate."""

import http.client
import json
import ssl
import tempfile
from base64 import b64decode
from pathlib import Path
from typing import Any

import yaml

from openclaw_cluster.errors import ClusterError

TIMEOUT_SEC = 15
FIELD_MANAGER = "openclaw-cluster"


class ApiError(ClusterError):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"Kubernetes API: {status} {text[:300]}")
        self.status = status


class Api:
    """One connection per request: a restart of the API server is never seen as a broken client."""

    def __init__(self, kubeconfig: Path) -> None:
        document = yaml.safe_load(kubeconfig.read_text())
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        self._host = cluster["server"].removeprefix("https://")
        self._context = ssl.create_default_context(cadata=b64decode(cluster["certificate-authority-data"]).decode())
        with tempfile.NamedTemporaryFile() as pair:
            # The ssl module reads client certificates from files only.
            pair.write(b64decode(user["client-certificate-data"]) + b64decode(user["client-key-data"]))
            pair.flush()
            self._context.load_cert_chain(pair.name)

    def call(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
        connection = http.client.HTTPSConnection(self._host, context=self._context, timeout=TIMEOUT_SEC)
        try:
            encoded = None if body is None else json.dumps(body)
            connection.request(method, path, encoded, {"Content-Type": content_type, "Accept": "application/json"})
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        if response.status >= 400:
            raise ApiError(response.status, text)
        try:
            return json.loads(text)
        except json.JSONDecodeError:
            return text

    def get(self, path: str) -> Any:
        return self.call("GET", path)

    def find(self, path: str) -> Any:
        """Like `get`; None if it does not exist."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def apply(self, manifest: dict[str, Any]) -> None:
        path = f"{object_path(manifest)}?fieldManager={FIELD_MANAGER}&force=true"
        self.call("PATCH", path, manifest, "application/apply-patch+yaml")

    def delete(self, path: str) -> None:
        try:
            self.call("DELETE", path)
        except ApiError as error:
            if error.status != 404:
                raise


def collection_path(api_version: str, kind: str, namespace: str | None) -> str:
    root = f"/api/{api_version}" if "/" not in api_version else f"/apis/{api_version}"
    plural = f"{kind.lower()}es" if kind.lower().endswith("s") else f"{kind.lower()}s"
    return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"


def object_path(manifest: dict[str, Any]) -> str:
    metadata = manifest["metadata"]
    collection = collection_path(manifest["apiVersion"], manifest["kind"], metadata.get("namespace"))
    return f"{collection}/{metadata['name']}"
