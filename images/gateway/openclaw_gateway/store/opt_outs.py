"""`X-Openclaw-No-Train: 1`: nothing of the request is stored, and the session stays untracked while it quotes it.

What is kept is a hash over the conversation, salted with the owner's fingerprint, so that a later request that still
contains the message is known; never its words.
"""

from hashlib import blake2b

from sqlalchemy import delete, insert, select

from openclaw_gateway import conversation
from openclaw_gateway.store import statements as st
from openclaw_gateway.store.schema import opt_outs
from openclaw_gateway.store.sessions import Arrival
from openclaw_gateway.store.transaction import Transaction

_KEPT_SEC = 7 * 24 * 3600.0


def applies(tx: Transaction, arrival: Arrival) -> bool:
    """True when the request opts out, or still contains a message that did."""
    if arrival.opt_out:
        if arrival.session and arrival.messages:
            alone = conversation.extend(conversation.START, arrival.messages[-1])
            _remember(tx, arrival.owner, _mark(arrival.owner, arrival.session, alone))
        return True
    return _any(tx, arrival.owner) and _known(tx, arrival.owner, _marks(arrival))


def answered(tx: Transaction, owner: str, chain: bytes) -> None:
    """An opted-out request was answered; `chain` covers both. Whoever goes on from there quotes it.

    Without a session id the message alone would not do: any other conversation may open with the same words.
    """
    _remember(tx, owner, _mark(owner, "", chain))


def forget_old(tx: Transaction) -> None:
    tx.connection.execute(delete(opt_outs).where(opt_outs.c.until <= tx.now))


def _any(tx: Transaction, owner: str) -> bool:
    """Most owners never opt out: they pay for one look-up a commit, not for their history's hashes."""
    found = tx.opting_out.get(owner)
    if found is None:
        found = tx.opting_out[owner] = bool(tx.run(st.ANY_OPT_OUT, {"b_owner": owner}))
    return found


def _known(tx: Transaction, owner: str, marks: list[bytes]) -> bool:
    if not marks:
        return False
    query = select(opt_outs.c.mark).where(opt_outs.c.owner == owner, opt_outs.c.mark.in_(marks)).limit(1)
    return tx.connection.execute(query).first() is not None


def _marks(arrival: Arrival) -> list[bytes]:
    """Of every answer it continues; with a session id, of each of its messages too."""
    marks = [_mark(arrival.owner, "", prefix.chain) for prefix in arrival.outline.prefixes]
    if arrival.session:
        alone = (conversation.extend(conversation.START, message) for message in arrival.messages)
        marks += [_mark(arrival.owner, arrival.session, chain) for chain in alone]
    return marks


def _remember(tx: Transaction, owner: str, mark: bytes) -> None:
    tx.opting_out[owner] = True
    if not _known(tx, owner, [mark]):
        tx.connection.execute(insert(opt_outs).values(owner=owner, mark=mark, until=tx.now + _KEPT_SEC))


def _mark(owner: str, name: str, chain: bytes) -> bytes:
    return blake2b(f"{owner}\x00{name}\x00".encode() + chain, digest_size=16).digest()
