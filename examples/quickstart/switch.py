"""The users' switch: POST /stop and /start of the environment, tried again while its port-forward is away."""

import asyncio

import aiohttp

from examples.quickstart.commands import StepError
from examples.quickstart.forwards import Forward
from openclaw_core import names
from openclaw_core.wire import ClientReport

_TRIES = 10


class Switch:
    """Answers with the users' report at that moment. StepError when nobody takes the word."""

    def __init__(self, http: aiohttp.ClientSession, users: Forward) -> None:
        self._http, self._users = http, users

    async def stop(self) -> ClientReport:
        return await self._post("stop")

    async def start(self) -> ClientReport:
        return await self._post("start")

    async def _post(self, word: str) -> ClientReport:
        failure: Exception | None = None
        for _ in range(_TRIES):
            try:
                url = f"{self._users.url(names.PORT_ENVIRONMENT)}/{word}"
                async with asyncio.timeout(10), self._http.post(url) as response:
                    response.raise_for_status()
                    return ClientReport.model_validate_json(await response.text())
            except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
                failure = error
                await asyncio.sleep(1)
        raise StepError(f"the users did not take /{word}: {failure}")
