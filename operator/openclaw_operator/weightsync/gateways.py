"""The operator's direct word to gateways: a hold or its release. The Lease watch says the same, a little later."""

from dataclasses import dataclass, field

import aiohttp
from pydantic import ValidationError

from openclaw_core import names
from openclaw_core.wire import PausedAck
from openclaw_operator.weightsync.model import GatewayPod

_TIMEOUT = aiohttp.ClientTimeout(total=2, sock_connect=1)


@dataclass(frozen=True)
class Gateways:
    """Posts to the internal port of one training's gateways by pod IP."""

    session: aiohttp.ClientSession
    token: str = field(repr=False)

    async def tell(self, pod: GatewayPod, body: bytes) -> PausedAck | None:
        """Post a Paused as JSON; the gateway's answer, None when there is none in time. Only speed depends on it."""
        host = f"[{pod.ip}]" if ":" in pod.ip else pod.ip
        url = f"http://{host}:{names.PORT_GATEWAY_INTERNAL}/internal/paused"
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        try:
            async with self.session.post(url, data=body, headers=headers, timeout=_TIMEOUT) as response:
                return PausedAck.model_validate_json(await response.read()) if response.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, ValidationError):
            return None
