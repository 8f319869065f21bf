"""Hosts: whose clock is ahead by how much, and what the stats file says of them."""

from bench_common.messages import Heartbeat
from bench_master.coordinator.roster import Member
from bench_master.run.hosts import UNKNOWN_UNCERTAINTY_NS, WorkerHosts


def joined(boot_id="other", **info):
    member = Member(0, "w", "local", 4, None, b"peer", 7, 0.0)
    return WorkerHosts("mine").join(member, {"host": "blade", "boot_id": boot_id, **info})


def beat(offset_ns, uncertainty_ns):
    return Heartbeat(epoch=7, sent_ns=1, running=0, offset_ns=offset_ns, uncertainty_ns=uncertainty_ns)


def test_a_worker_of_this_host_has_our_clock():
    """Within one boot of one machine there is nothing to compare."""
    host = joined("mine")
    host.estimate_offset(10**12, 5)
    host.update_offset(beat(-77, 3), 5)
    assert (host.offset_ns, host.uncertainty_ns) == (0, 0)


def test_a_first_guess_serves_until_there_is_better():
    """Before any exchange the least delayed message gives the offset; the worker's own comparison replaces it."""
    host = joined()
    host.estimate_offset(1_000_000, 5_000)
    host.estimate_offset(2_000_000, 1_001_000)
    assert (host.offset_ns, host.uncertainty_ns) == (999_000, UNKNOWN_UNCERTAINTY_NS)
    host.update_offset(beat(0, -1), 5)
    assert host.uncertainty_ns == UNKNOWN_UNCERTAINTY_NS
    host.update_offset(beat(-999_500, 400), 5)
    assert (host.offset_ns, host.uncertainty_ns) == (999_500, 400)
    host.estimate_offset(9_000_000, 0)
    assert host.offset_ns == 999_500


def test_a_reading_ages():
    """Since the comparison the clocks may have parted by 100 us a second; what is not known is not read."""
    host = joined()
    assert (host.clock_known, host.clock_reading(0)) == (False, None)
    host.update_offset(beat(-7_000, 400), 10**9)
    assert (host.clock_known, host.clock_reading(3 * 10**9)) == (True, (7_000, 200_400, 2 * 10**9))
    ours = joined("mine")
    assert (ours.clock_known, ours.clock_reading(0)) == (True, None)


def test_a_clock_that_is_behind_is_guessed_too():
    """A negative offset is an offset."""
    host = joined()
    host.estimate_offset(100, 5_000)
    host.estimate_offset(1_100, 5_500)
    assert host.offset_ns == -4_400


def test_the_stats_file_names_the_engines_of_the_plan():
    """Versions of engines that the plan does not use are of no interest."""
    engines = {"docker": {"version": "20.10"}, "native": {"version": "6"}}
    block = joined(engines=engines).block(3, frozenset({"docker", "odd"}))
    assert (block["worker"], block["host"], block["engines"]) == (3, "blade", {"docker": "20.10"})
    assert joined().block(0, frozenset({"docker"}))["engines"] == {}
