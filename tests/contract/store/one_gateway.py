"""One gateway process on a shared store: `python -m tests.contract.store.one_gateway URL TRAINING POD MODE …`.

`admit`: sixty one-shot users, prints how many got in. `work`: begins, finishes, judges and trains until it is killed,
printing each sample it was given. Both take η and B behind them.
"""

import asyncio
import os
import sys
from dataclasses import replace

from openclaw_core import wire
from openclaw_gateway import conversation
from openclaw_gateway.store.databases import Postgres
from openclaw_gateway.store.store import Store
from openclaw_gateway.store.turns import Begun, Finished
from tests.contract.store.shared import POLICY
from tests.unit.gateway.stored import arrival, recording, talk


async def main(url: str, training: str, pod: str, mode: str, eta: str = "1", batch: str = "8") -> None:
    policy = replace(POLICY, max_head_off_policyness=int(eta), rollout_batch_size=int(batch))
    store = await Store.open(Postgres(url, namespace="shared", training=training), policy, f"{pod}-{os.getpid():08x}")
    if mode == "admit":
        admissions = await asyncio.gather(*(store.arrive(arrival(talk(f"{pod} {n}"))) for n in range(60)))
        say(sum(isinstance(admission, Begun) for admission in admissions))
        await store.close()
        return
    say("ready")
    await asyncio.gather(user(store, pod), user(store, pod + "'"), judge(store, pod), trainer(store))


async def user(store: Store, name: str) -> None:
    for number in range(100_000):
        session = f"{name}-{number}"
        prompt, answer = talk("q"), {"role": "assistant", "content": "ok"}
        admission = await store.arrive(arrival(prompt, session=session, gateway=store.gateway))
        if not isinstance(admission, Begun):
            await asyncio.sleep(0.01)
            continue
        chain = conversation.extend(conversation.outline(prompt).chain, answer)
        await store.finish(admission.turn_id, Finished(prompt, answer, chain, recording()))
        await store.arrive(arrival(talk("q", "ok", "thanks"), session=session, untracked="n"))


async def judge(store: Store, name: str) -> None:
    while True:
        lease = wire.LeaseTurns(worker=name, max_turns=8, lease_sec=60, wait_sec=1)
        for turn in (await store.lease_turns(lease)).turns:
            await store.score(wire.ScoreTurn(id=turn.id, lease=turn.lease, score=1, votes=[1]))


async def trainer(store: Store) -> None:
    while True:
        wanted = wire.LeaseSamples(trainer_epoch=1, batch=4, min_batch=4, batch_wait_sec=9, lease_sec=60, wait_sec=1)
        if ids := [sample.id for sample in (await store.lease_samples(wanted)).samples]:
            await store.ack(wire.AckSamples(trainer_epoch=1, ids=ids, version="1-0a1b2c3d"))
            say(*ids)


def say(*words: object) -> None:
    print(*words, flush=True)  # noqa: T201 - what the test reads


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
