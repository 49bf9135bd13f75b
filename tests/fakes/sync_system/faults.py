# ruff: noqa: ARG001 - every fault takes the same arguments, needed or not
"""What can be done to the system, by name. `index` picks a victim, `seconds` says for how long."""

from collections.abc import Callable

from tests.fakes.sync_system.engines import Engine
from tests.fakes.sync_system.gateways import Gateway
from tests.fakes.sync_system.operators import Operator
from tests.fakes.sync_system.system import System, version

Fault = Callable[[System, int, float], None]


def _engine(system: System, index: int) -> Engine | None:
    living = list(system.engines.values())
    return living[index % len(living)] if living else None


def _gateway(system: System, index: int) -> Gateway | None:
    living = list(system.gateways.values())
    return living[index % len(living)] if living else None


def _operator(system: System, index: int) -> Operator | None:
    living = system.leaders()
    return living[index % len(living)] if living else None


def _lasts(system: System, seconds: float) -> None:
    system.faults_until = max(system.faults_until, system.time.now + seconds)


def publish(system: System, index: int, seconds: float) -> None:
    """The trainer writes a version; with an odd index it dies before announcing and does so after its restart."""
    system.publish(seconds if index % 2 else 0.0)


def publish_bad(system: System, index: int, seconds: float) -> None:
    """A version that no engine can load."""
    system.bad.add(version(system.published + 1))
    publish(system, index, seconds)


def publish_often(system: System, count: int, distance: float) -> None:
    for one in range(count):
        system.time.at(one * distance, system.publish)
    _lasts(system, count * distance)


def burst(system: System, index: int, seconds: float) -> None:
    """A few versions right after each other."""
    publish_often(system, 5, 1.0 + index)


def storm(system: System, index: int, seconds: float) -> None:
    """Minutes of new versions that every engine hangs on."""
    for engine in system.engines.values():
        engine.behaviour.hangs_until = system.time.now + 10 * seconds
    _lasts(system, 10 * seconds)
    publish_often(system, 20, 9.0)


def pin(system: System, index: int, seconds: float) -> None:
    """An admin pins an older version for a while; it may be one that is gone or never was."""
    kept = [number for number in range(system.published + 1) if number not in system.deleted]
    system.pinned = version(kept[index % len(kept)]) if index % 4 else "7-ffffffff"
    system.time.at(seconds, lambda: setattr(system, "pinned", None))


def ask_for_sync(system: System, index: int, seconds: float) -> None:
    system.request = f"ask-{system.time.now:.3f}" if index % 4 else "no id at all!"


def kill_operator(system: System, index: int, seconds: float) -> None:
    """kill -9; another one leads after a while."""
    victim = _operator(system, index)
    if victim is not None:
        system.crash(victim, seconds)


def crash_in_holds(system: System, index: int, seconds: float) -> None:
    """Every operator dies the moment it touches an engine, for minutes, while versions keep coming."""
    system.crashes_until = system.time.now + 10 * seconds
    _lasts(system, 10 * seconds)
    publish_often(system, 10, 8.0)


def lose_everything(system: System, index: int, seconds: float) -> None:
    """The Lease is deleted and the operator that could mend it dies."""
    delete_lease(system, index, seconds)
    kill_operator(system, index, seconds)


def freeze_operator(system: System, index: int, seconds: float) -> None:
    """It hears and says nothing for a while, then goes on with what it knew; an odd index makes another one lead."""
    victim = _operator(system, index)
    if victim is not None:
        victim.frozen_until = system.time.now + seconds
        if index % 2:
            second_leader(system, index, seconds + 5.0)


def second_leader(system: System, index: int, seconds: float) -> None:
    """Two operators lead for a while, the second with a clock of its own; then the older one ends."""
    known = system.leaders()
    if not known or len(known) > 1:
        return
    system.start_operator((0.0, -4.0, 4.0, 30.0, -30.0)[index % 5])
    system.time.at(seconds, lambda: system.crash(known[0]))


def api_down(system: System, index: int, seconds: float) -> None:
    system.server.down_until = system.time.now + seconds


def lose_messages(system: System, index: int, seconds: float) -> None:
    system.network.loses_until = system.time.now + seconds


def delay_messages(system: System, index: int, seconds: float) -> None:
    system.network.delays_until = system.time.now + seconds


def replace_engine(system: System, index: int, seconds: float) -> None:
    """The pod dies; another comes."""
    victim = _engine(system, index)
    if victim is not None:
        remove_engine(system, index, seconds)
        system.time.at(seconds / 4, system.add_engine)


def remove_engine(system: System, index: int, seconds: float) -> None:
    victim = _engine(system, index)
    if victim is not None:
        victim.vanish()
        del system.engines[victim.uid]


def add_engine(system: System, index: int, seconds: float) -> None:
    if len(system.engines) < 4:
        system.add_engine()


def kill_container(system: System, index: int, seconds: float) -> None:
    victim = _engine(system, index)
    if victim is not None:
        victim.restart()


def _spoil(what: str) -> Fault:
    def fault(system: System, index: int, seconds: float) -> None:
        victims = system.engines.values() if index % 4 == 3 else [_engine(system, index)]
        for victim in victims:
            if victim is not None:
                setattr(victim.behaviour, f"{what}_until", system.time.now + seconds)

    return fault


def kill_gateway(system: System, index: int, seconds: float) -> None:
    victim = _gateway(system, index)
    if victim is not None:
        victim.restart(seconds)


def cut_gateway(system: System, index: int, seconds: float) -> None:
    victim = _gateway(system, index)
    if victim is not None:
        victim.cut_until = system.time.now + seconds


def add_gateway(system: System, index: int, seconds: float) -> None:
    """One more, with a clock of its own."""
    if len(system.gateways) < 3:
        system.add_gateway((0.0, 1000.0, -1000.0, 20.0, -20.0)[index % 5])


def garble_lease(system: System, index: int, seconds: float) -> None:
    system.server.garble()


def delete_lease(system: System, index: int, seconds: float) -> None:
    system.server.delete(seconds / 4)


def put_back_lease(system: System, index: int, seconds: float) -> None:
    system.server.put_back(seconds)


COMMON: dict[str, Fault] = {
    "publish": publish,
    "publish bad": publish_bad,
    "burst": burst,
    "storm": storm,
    "crash in holds": crash_in_holds,
    "pin": pin,
    "ask for sync": ask_for_sync,
    "kill operator": kill_operator,
    "freeze operator": freeze_operator,
    "second leader": second_leader,
    "api down": api_down,
    "lose messages": lose_messages,
    "delay messages": delay_messages,
    "replace engine": replace_engine,
    "remove engine": remove_engine,
    "add engine": add_engine,
    "kill container": kill_container,
    "engine fails": _spoil("fails"),
    "engine dirty": _spoil("dirty"),
    "engine lies": _spoil("lies"),
    "engine hangs": _spoil("hangs"),
    "agent silent": _spoil("silent"),
    "kill gateway": kill_gateway,
    "cut gateway": cut_gateway,
    "add gateway": add_gateway,
}
"""What happens to a system whose Lease nobody edits."""

TAMPERING: dict[str, Fault] = {
    "garble lease": garble_lease,
    "delete lease": delete_lease,
    "lose everything": lose_everything,
    "put back lease": put_back_lease,
}
"""Somebody with kubectl; what the Lease remembers is then not asked for."""

FAULTS = COMMON | TAMPERING
