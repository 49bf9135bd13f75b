"""`X-Openclaw-No-Train: 1`: nothing of the request is stored, and the session stays untracked while it quotes it.

What is kept is a hash over the conversation, salted with the owner's fingerprint, so that a later request that still
contains the message is known; never its words.
"""

from hashlib import blake2b

from sqlalchemy import delete, insert, select

from openclaw_gateway import conversation
from openclaw_gateway.store.schema import opt_outs
from openclaw_gateway.store.sessions import Arrival
from openclaw_gateway.store.transaction import Transaction

_KEPT_SEC = 7 * 24 * 3600.0


def applies(tx: Transaction, arrival: Arrival) -> bool:
    """True when the request opts out, or still contains a message that did."""
    name = arrival.session or ""
    if arrival.opt_out:
        for mark in _own_marks(arrival, name):
            if not _known(tx, arrival.owner, [mark]):
                tx.connection.execute(insert(opt_outs).values(owner=arrival.owner, mark=mark, until=tx.now + _KEPT_SEC))
        return True
    return _any(tx, arrival.owner) and _known(tx, arrival.owner, _all_marks(arrival, name))


def forget_old(tx: Transaction) -> None:
    tx.connection.execute(delete(opt_outs).where(opt_outs.c.until <= tx.now))


def _any(tx: Transaction, owner: str) -> bool:
    """Most owners never opt out: they pay for one look-up, not for their history's hashes."""
    return tx.connection.execute(select(opt_outs.c.mark).where(opt_outs.c.owner == owner).limit(1)).first() is not None


def _known(tx: Transaction, owner: str, marks: list[bytes]) -> bool:
    if not marks:
        return False
    query = select(opt_outs.c.mark).where(opt_outs.c.owner == owner, opt_outs.c.mark.in_(marks)).limit(1)
    return tx.connection.execute(query).first() is not None


def _own_marks(arrival: Arrival, name: str) -> list[bytes]:
    """Marks of what this request adds: the conversation up to it, and with a session id its last message alone."""
    marks = [_mark(arrival.owner, "", arrival.outline.chain)]
    if name and arrival.messages:
        marks.append(_mark(arrival.owner, name, conversation.extend(conversation.START, arrival.messages[-1])))
    return marks


def _all_marks(arrival: Arrival, name: str) -> list[bytes]:
    marks = [_mark(arrival.owner, "", chain) for chain in arrival.outline.marks]
    if name:
        alone = (conversation.extend(conversation.START, message) for message in arrival.messages)
        marks += [_mark(arrival.owner, name, chain) for chain in alone]
    return marks


def _mark(owner: str, name: str, chain: bytes) -> bytes:
    return blake2b(f"{owner}\x00{name}\x00".encode() + chain, digest_size=16).digest()
