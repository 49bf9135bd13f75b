"""Which engine serves a session."""

from openclaw_gateway.fleet import Fleet, fault, pick, proven, readmit


def fleet(*addresses, ready=True, version="1-0a1b2c3d"):
    made = Fleet()
    made.set_addresses(addresses)
    for engine in made.engines.values():
        engine.ready, engine.version = ready, version
    return made


def test_session_stays_on_its_engine_while_others_come_and_go():
    many = fleet(*(f"10.0.0.{n}:8000" for n in range(8)))
    before = {f"s{n}": many.choose(f"s{n}", version=None).address for n in range(200)}
    assert len(set(before.values())) == 8
    many.set_addresses(address for address in many.engines if address != "10.0.0.3:8000")
    after = {session: many.choose(session, version=None).address for session in before}
    moved = [session for session in before if before[session] != after[session]]
    assert all(before[session] == "10.0.0.3:8000" for session in moved)


def test_busy_engine_passes_its_sessions_on():
    two = fleet("a:1", "b:1")
    engines = list(two.engines.values())
    home = pick(engines, "s")
    home.in_flight = 10
    assert pick(engines, "s") is not home
    next(engine for engine in engines if engine is not home).in_flight = 10
    assert pick(engines, "s") is home


def test_engine_that_leaves_a_probe_unanswered_gets_new_turns_only_where_no_other_can():
    two = fleet("a:1", "b:1")
    home = two.choose("s", version=None, now=100.0)
    home.silent_since = 100.0
    assert two.choose("s", version=None, now=101.5) is home
    (other,) = set(two.engines.values()) - {home}
    assert two.choose("s", version=None, now=101.6) is other
    other.version = "0-0a1b2c3d"
    assert two.choose("s", version=home.version, now=101.6) is other, "rather another version than no answer"
    other.silent_since = 90.0
    assert two.choose("s", version=home.version, now=101.6) is home


def test_only_ready_engines_serve():
    two = fleet("a:1", "b:1", ready=False)
    assert two.choose("s", version=None) is None
    two.engines["b:1"].ready = True
    assert two.choose("s", version=None).address == "b:1"


def test_other_version_is_avoided_but_never_starved():
    two = fleet("a:1", "b:1")
    two.engines["a:1"].version = "0-00000000"
    assert {two.choose(f"s{n}", version="1-0a1b2c3d").address for n in range(20)} == {"b:1"}
    assert two.choose("s", version="9-99999999") is not None


def test_failed_engine_is_avoided_unless_it_is_the_only_one():
    two = fleet("a:1", "b:1")
    home = two.choose("s", version=None)
    assert two.choose("s", version=None, avoid=home) is not home
    one = fleet("a:1")
    assert one.choose("s", version=None, avoid=one.engines["a:1"]) is one.engines["a:1"]


def test_known_engine_keeps_its_state_when_the_addresses_change():
    one = fleet("a:1")
    engine = one.engines["a:1"]
    one.set_addresses(["a:1", "b:1"])
    assert one.engines["a:1"] is engine
    assert not one.engines["b:1"].ready


def test_engine_at_its_cap_gets_nothing_more():
    made = Fleet(most_in_flight=2)
    made.set_addresses(["a:1", "b:1"])
    for engine in made.engines.values():
        engine.ready = True
    made.engines["a:1"].in_flight = 2
    assert {made.choose(f"s{n}", version=None).address for n in range(20)} == {"b:1"}
    made.engines["b:1"].in_flight = 2
    assert made.choose("s", version=None) is None


def test_engine_that_fails_turn_after_turn_is_ejected_for_longer_and_longer():
    two = fleet("a:1", "b:1")
    bad = two.engines["a:1"]
    for _ in range(4):
        fault(bad, 100.0)
    assert {two.choose(f"s{n}", version=None).address for n in range(20)} == {"a:1", "b:1"}
    fault(bad, 100.0)
    assert {two.choose(f"s{n}", version=None).address for n in range(20)} == {"b:1"}
    readmit(bad, 104.9)
    assert bad.ejected_until == 105.0
    readmit(bad, 105.0)
    assert {two.choose(f"s{n}", version=None).address for n in range(20)} == {"a:1", "b:1"}
    fault(bad, 105.0)
    assert bad.ejected_until == 115.0
    for _ in range(20):
        fault(bad, 105.0)
    assert bad.ejected_until == 165.0
    proven(bad)
    assert (bad.faults, bad.ejected_until) == (0, 0.0)


def test_ejected_engine_serves_when_nobody_else_is_there():
    one = fleet("a:1")
    for _ in range(5):
        fault(one.engines["a:1"], 0.0)
    assert one.choose("s", version=None).address == "a:1"
