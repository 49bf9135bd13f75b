"""`X-Openclaw-No-Train: 1`: nothing of the request is stored, and the session stays untracked while it quotes it.

What is kept, for seven days, are hashes of passages of the conversation, salted with the owner's fingerprint, so that a
later request that still contains the message is known; never its words. They are written when the request arrives, for
it may fail or be stopped, and when it was answered.

    the client names its session   the message itself, in that session
    an answer comes before it      that answer and what was said since
    it opens the conversation      what was said so far, with a reservation
    it was answered                what was said since the answer before, and each choice of the answer

Another user of the same key who says the same after the same answer, or gets the same answer to it, cannot be told
apart: a turn too few is better than one too many. The reservation is for openings, which many may share. They count
for nothing alone, in a named session, and where a recorded turn answered them; any other history that begins with them
counts as the opted-out one.
"""

from collections.abc import Sequence
from hashlib import blake2b

from sqlalchemy import delete, insert, select, update

from openclaw_gateway import conversation
from openclaw_gateway.conversation import Kind
from openclaw_gateway.store import statements as st
from openclaw_gateway.store.schema import opt_outs, turns
from openclaw_gateway.store.sessions import Arrival
from openclaw_gateway.store.transaction import Transaction

_KEPT_SEC = 7 * 24 * 3600.0
_AT_ONCE = 500


def applies(tx: Transaction, arrival: Arrival) -> bool:
    """True when the request opts out, or still contains a message that did."""
    if arrival.opt_out:
        remember(tx, arrival.owner, marks(arrival))
        return True
    return _any(tx, arrival.owner) and _contains(tx, arrival)


def marks(arrival: Arrival) -> list[bytes]:
    """What an opted-out request is known by, whatever becomes of it."""
    said = [message for message in arrival.messages if message.get("role") != "assistant"]
    passages = [one for one in conversation.passages(arrival.messages) if one.kind is not Kind.ANSWERED]
    named = _named(arrival, said[-1:]) if arrival.session else []
    kept = [one for one in passages[-1:] if one.kind is Kind.SAID or not arrival.session]
    return named + [_mark(arrival.owner, "", one.chain) for one in kept]


def answered(tx: Transaction, owner: str, chains: Sequence[bytes]) -> None:
    """An opted-out request was answered; `chains` are of what whoever goes on from there quotes."""
    remember(tx, owner, [_mark(owner, "", chain) for chain in chains])


def remember(tx: Transaction, owner: str, marks: Sequence[bytes]) -> None:
    for mark in marks:
        tx.opting_out[owner] = True
        until = tx.now + _KEPT_SEC
        known = update(opt_outs).where(opt_outs.c.owner == owner, opt_outs.c.mark == mark).values(until=until)
        if not tx.connection.execute(known).rowcount:
            tx.connection.execute(insert(opt_outs).values(owner=owner, mark=mark, until=until))


def forget_old(tx: Transaction) -> None:
    tx.connection.execute(delete(opt_outs).where(opt_outs.c.until <= tx.now))


def _any(tx: Transaction, owner: str) -> bool:
    """Most owners never opt out: they pay for one look-up a commit, not for their history's hashes."""
    found = tx.opting_out.get(owner)
    if found is None:
        found = tx.opting_out[owner] = bool(tx.run(st.ANY_OPT_OUT, {"b_owner": owner}))
    return found


def _contains(tx: Transaction, arrival: Arrival) -> bool:
    passages = list(conversation.passages(arrival.messages))
    openings = [one.chain for one in passages if one.kind is Kind.OPENING]
    chains = [one.chain for one in passages if one.kind is not Kind.OPENING]
    chains += [prefix.chain for prefix in arrival.outline.prefixes]
    if arrival.session:
        return _known(tx, arrival.owner, chains, _named(arrival, arrival.messages))
    if _known(tx, arrival.owner, chains + openings[:-1]):
        return True
    goes_on = any(one.kind is Kind.SAID for one in passages)
    return goes_on and _known(tx, arrival.owner, openings[-1:]) and not _is_recorded(tx, arrival)


def _is_recorded(tx: Transaction, arrival: Arrival) -> bool:
    """One of its answers, after all that came before it, is a recorded turn's."""
    chains = [prefix.chain for prefix in arrival.outline.prefixes[:_AT_ONCE]]
    query = select(turns.c.id).where(turns.c.owner == arrival.owner, turns.c.chain.in_(chains)).limit(1)
    return tx.connection.execute(query).first() is not None


def _known(tx: Transaction, owner: str, chains: Sequence[bytes], named: Sequence[bytes] = ()) -> bool:
    """`named`: marks of a named session."""
    found = [*(_mark(owner, "", chain) for chain in chains), *named]
    return any(_are_any(tx, owner, found[at : at + _AT_ONCE]) for at in range(0, len(found), _AT_ONCE))


def _are_any(tx: Transaction, owner: str, marks: Sequence[bytes]) -> bool:
    query = select(opt_outs.c.mark).where(opt_outs.c.owner == owner, opt_outs.c.mark.in_(marks)).limit(1)
    return tx.connection.execute(query).first() is not None


def _named(arrival: Arrival, messages: Sequence[conversation.Message]) -> list[bytes]:
    """Marks of the messages alone, in the session that the client named."""
    chains = (conversation.extend(conversation.START, message) for message in messages)
    return [_mark(arrival.owner, arrival.session or "", chain) for chain in chains]


def _mark(owner: str, name: str, chain: bytes) -> bytes:
    return blake2b(f"{owner}\x00{name}\x00".encode() + chain, digest_size=16).digest()
