"""An engine's own processes on recorded hosts: which are counted, their memory, their CPU time."""

import math
import os

import pytest
from recorded_host import Machine

from bench_worker.engines.base import CompanionDaemon, DaemonProcesses
from bench_worker.engines.daemon_processes import containerd_daemon, docker_daemon, gvisor_processes, podman_daemon
from bench_worker.engines.registry import daemon_processes
from bench_worker.host.daemons import PSS_INTERVAL_FACTOR, DaemonSampler, engine_samplers, listening_pid
from bench_worker.host.procfs import parse_process_stat, parse_pss
from bench_worker.host.sampler import CgroupSampler

PAGE = os.sysconf("SC_PAGE_SIZE")
TICK_NS = 10**9 // os.sysconf("SC_CLK_TCK")
S = 10**9
DOCKER = "/var/run/docker.sock"
OWN_CONTAINERD = "/var/run/docker/containerd/containerd.sock"


class DaemonMachine(Machine):
    """Such a host with daemons."""

    def sampler(self, side):
        """Begin to sample."""
        return DaemonSampler(side, self, clock=self.clock, listener=self.listening.get)


@pytest.fixture
def machine():
    return DaemonMachine()


@pytest.fixture
def docker(machine):
    """A Docker Engine with a containerd of its own, before any container of ours."""
    machine.process(10, "dockerd", own=100, rss=20)
    machine.process(11, "containerd", 10, own=50, rss=10)
    machine.listening = {DOCKER: 10, OWN_CONTAINERD: 11}
    return machine


def shim(machine, pid, *, address=OWN_CONTAINERD, **more):
    told = f"/usr/bin/containerd-shim-runc-v2 -namespace moby -id {pid}a -address {address}"
    machine.process(pid, "containerd-shim", told=told, started=100 + pid, **more)


# -- which processes ----------------------------------------------------------------------------------------------


def test_daemon_helpers_and_shims_are_counted_and_containers_are_not(docker):
    """The tree below the listener by name, and shims of its containerd; not what runs in a container."""
    sampler = docker.sampler(docker_daemon(f"unix://{DOCKER}"))
    docker.process(12, "docker-proxy", 10, rss=3)
    shim(docker, 30, rss=5)
    docker.process(31, "sleep", 30, rss=1000)
    docker.process(32, "iptables", 10, rss=1000)
    docker.process(40, "dockerd", rss=1000)
    row = sampler.sample()
    assert row["processes"] == 4
    assert row["rss_bytes"] == (20 + 10 + 3 + 5) * PAGE


def test_shims_of_another_engine_and_of_other_peoples_containers_are_not_counted(docker):
    """One that was told another socket, and one that was there before the run, serve others."""
    docker.process(50, "containerd", rss=7)
    docker.listening["/run/containerd/containerd.sock"] = 50
    shim(docker, 29)
    sampler = docker.sampler(docker_daemon(f"unix://{DOCKER}"))
    shim(docker, 30, address="/run/containerd/containerd.sock")
    shim(docker, 33, address="/nobody/listens")
    assert sampler.sample()["processes"] == 2
    shim(docker, 34)
    assert sampler.sample()["processes"] == 3


def test_a_shim_that_has_ended_is_nobodys_and_one_that_begins_has_a_command_line_soon(docker):
    """Of a process that nobody has collected the command line is empty, and so it is before the program runs."""
    sampler = docker.sampler(docker_daemon(f"unix://{DOCKER}"))
    docker.process(60, "containerd-shim", started=160)
    docker.process(61, "containerd-shim", started=161)
    assert sampler.sample()["processes"] == 2
    shim(docker, 61)
    assert sampler.sample()["processes"] == 3


@pytest.mark.parametrize("told", ["dockerd --containerd=/c.sock", "dockerd --containerd /c.sock", "dockerd -H fd://"])
def test_a_containerd_that_docker_did_not_start_is_its_companion(machine, told):
    """It is found at the socket that Docker was told, or at the usual one, and its shims with it."""
    machine.process(10, "dockerd", told=told)
    machine.process(20, "containerd")
    address = "/c.sock" if "c.sock" in told else "/run/containerd/containerd.sock"
    machine.listening = {DOCKER: 10, address: 20}
    sampler = machine.sampler(docker_daemon(f"unix://{DOCKER}"))
    shim(machine, 30, address=address)
    assert sampler.sample()["processes"] == 3


def test_where_systemd_listens_the_pid_file_counts(machine):
    """Who made the socket is not who serves it: a listener of another name is none of the engine's."""
    machine.process(1, "systemd")
    machine.process(10, "dockerd")
    machine.listening = {DOCKER: 1}
    machine.texts["/var/run/docker.pid"] = "10"
    sampler = machine.sampler(docker_daemon(f"unix://{DOCKER}"))
    assert sampler.found
    assert sampler.sample()["processes"] == 1


def test_monitors_without_a_daemon_are_counted(machine):
    """Podman's monitors are told no socket: those that came during the run are its own."""
    machine.process(7, "conmon")
    sampler = machine.sampler(podman_daemon())
    assert not sampler.found
    assert sampler.sample() is None
    machine.process(8, "conmon", rss=2, told="conmon --api-version 1")
    assert sampler.sample()["rss_bytes"] == 2 * PAGE


def gvisor(machine, sandbox, *, parent, state="/run/runsc", **more):
    """Let gVisor's processes of a container be there, and the traced ones that its program runs in."""
    for pid, name in ((sandbox, "sandbox"), (sandbox + 1, "gofer")):
        machine.process(pid, "exe", parent, started=pid, told=f"runsc-{name} --root={state} boot", rss=7, **more)
    machine.process(sandbox + 2, "exe", sandbox, started=sandbox, own=5000, rss=1000)


def test_a_sandbox_belongs_to_the_engine_whose_shim_started_it(docker):
    """Its kernel and file server count; not what is below them, nor another shim's, nor what is only called alike."""
    docker.process(70, "exe", 69, told="runsc-sandbox")
    sampler = docker.sampler(docker_daemon(f"unix://{DOCKER}"))
    shim(docker, 30, rss=5)
    gvisor(docker, 40, parent=30, own=3, waited=800)
    shim(docker, 50, address="/nobody/listens")
    gvisor(docker, 60, parent=50)
    docker.process(80, "exe", 30, told="unpigz")
    row = sampler.sample()
    assert row["processes"] == 2 + 1 + 2
    assert row["rss_bytes"] == (20 + 10 + 5 + 2 * 7) * PAGE
    assert row["cpu_ns"] == 2 * 3 * TICK_NS


def test_a_sandbox_without_a_shim_is_known_by_its_state(machine):
    """A runtime that is driven alone has those of its own state, come since the beginning; none is no gap."""
    gvisor(machine, 20, parent=1, state="/run/ours")
    sampler = machine.sampler(gvisor_processes("/run/ours"))
    assert not sampler.found
    gvisor(machine, 30, parent=1, state="/run/ours", own=4)
    gvisor(machine, 40, parent=1, state="/run/theirs")
    row = sampler.sample()
    assert (row["processes"], row["rss_bytes"], row["cpu_ns"]) == (2, 2 * 7 * PAGE, 2 * 4 * TICK_NS)
    machine.now_ns = S
    for pid in (30, 31, 32):
        machine.end(pid)
    row = sampler.sample()
    assert (row["processes"], row["rss_bytes"], row["cpu_ns"], row["interval_ns"]) == (0, 0, 0, S)


def test_a_daemon_that_dies_and_comes_back_is_found_again(docker):
    """Without processes there is no row; the new daemon is found at its socket, and counts from its beginning."""
    sampler = docker.sampler(docker_daemon(f"unix://{DOCKER}"))
    docker.end(10)
    docker.end(11)
    assert sampler.sample() is None
    docker.now_ns = 4 * S
    docker.process(60, "dockerd", own=3, started=900)
    docker.listening[DOCKER] = 60
    row = sampler.sample()
    assert (row["processes"], row["cpu_ns"], row["interval_ns"]) == (1, 3 * TICK_NS, 4 * S)


def test_every_engine_says_which_processes_are_its_own():
    """Those with a daemon declare it, runtimes and plain processes that they have none; of others we know nothing."""
    assert daemon_processes("docker").names >= {"dockerd", "containerd"}
    assert daemon_processes("docker-cli") == daemon_processes("docker")
    assert not daemon_processes("native")
    assert not daemon_processes("runc")
    assert (
        daemon_processes("runsc").sandboxes
        == daemon_processes("docker").sandboxes
        == {"runsc-sandbox", "runsc-gofer"}
    )
    assert daemon_processes("podman").shims == {"conmon"}
    assert daemon_processes("containerd").names == {"containerd"}
    assert daemon_processes("nonesuch") is None
    assert docker_daemon("tcp://10.0.0.1:2375") is None
    assert containerd_daemon().sockets == ("/run/containerd/containerd.sock",)


def test_nobody_listens_on_a_path_that_is_no_socket(tmp_path):
    """A socket that cannot be asked tells of no process, and is no error."""
    assert listening_pid(str(tmp_path / "none.sock")) is None


# -- how much -----------------------------------------------------------------------------------------------------


def test_cpu_time_is_that_of_the_interval(docker):
    """Ticks since the reading before, of daemons with those of children that they waited for."""
    sampler = docker.sampler(docker_daemon(f"unix://{DOCKER}"))
    docker.now_ns = S
    docker.process(10, "dockerd", own=107, waited=4)
    docker.process(11, "containerd", 10, own=52)
    row = sampler.sample()
    assert (row["cpu_ns"], row["interval_ns"], row["time_ns"]) == ((7 + 4 + 2) * TICK_NS, S, S)
    assert sampler.sample()["cpu_ns"] == 0


def test_a_shim_counts_without_what_its_container_used(docker):
    """A shim waits for its container's processes, so what it waited for is no cost of the engine."""
    sampler = docker.sampler(docker_daemon(f"unix://{DOCKER}"))
    shim(docker, 30, own=2, waited=9000)
    assert sampler.sample()["cpu_ns"] == 2 * TICK_NS
    shim(docker, 30, own=3, waited=9900)
    assert sampler.sample()["cpu_ns"] == TICK_NS


def test_a_helper_that_was_waited_for_counts_once(docker):
    """What a child used up to its last reading is in its parent's account afterwards, and is taken off."""
    sampler = docker.sampler(docker_daemon(f"unix://{DOCKER}"))
    docker.process(12, "docker-proxy", 10, own=6, started=200)
    assert sampler.sample()["cpu_ns"] == 6 * TICK_NS
    docker.end(12)
    docker.process(10, "dockerd", own=100, waited=8)
    assert sampler.sample()["cpu_ns"] == 2 * TICK_NS


def test_a_number_that_is_used_again_is_another_process(docker):
    """A process that ended does not lend its time to the next one of its number."""
    sampler = docker.sampler(docker_daemon(f"unix://{DOCKER}"))
    docker.process(11, "containerd", 10, own=1, started=999)
    docker.process(10, "dockerd", own=100, waited=50)
    assert sampler.sample()["cpu_ns"] == TICK_NS


def test_shared_pages_count_once_in_pss_which_is_whole_or_not_a_number(docker):
    """PSS is summed where every process shows it; where one does not, there is no sum."""
    for pid in (10, 11):
        docker.texts[f"/proc/{pid}/smaps_rollup"] = "Pss: 8 kB"
    sampler = docker.sampler(docker_daemon(f"unix://{DOCKER}"))
    assert sampler.sample()["pss_bytes"] == 16 * 1024
    del docker.texts["/proc/11/smaps_rollup"]
    assert math.isnan(sampler.sample()["pss_bytes"])


def test_pss_takes_a_small_part_of_the_time_only(docker):
    """After a reading that took long there is none for many times as long."""
    for pid in (10, 11):
        docker.texts[f"/proc/{pid}/smaps_rollup"] = "Pss: 8 kB"
    docker.reading_ns = 1000
    sampler = docker.sampler(docker_daemon(f"unix://{DOCKER}"))
    assert sampler.sample()["pss_bytes"] > 0
    assert math.isnan(sampler.sample()["pss_bytes"])
    docker.now_ns += PSS_INTERVAL_FACTOR * 1000
    assert sampler.sample()["pss_bytes"] > 0


def test_a_process_may_have_any_name():
    """Blanks and brackets in a name do not shift the fields behind it."""
    one = parse_process_stat("42 (a) b (c) S 7 " + " ".join(map(str, range(5, 53))))
    assert (one.pid, one.name, one.parent) == (42, "a) b (c", 7)
    assert (one.own_ticks, one.waited_ticks, one.start_ticks, one.rss_pages) == (14 + 15, 16 + 17, 22, 24)
    with pytest.raises(ValueError, match="/proc/PID/stat"):
        parse_process_stat("42 (a) S")
    assert parse_pss("Rss: 1 kB\n") is None


# -- control groups -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/docker", "docker/", "/sys/fs/cgroup/memory/docker", "/sys/fs/cgroup/docker"])
def test_a_control_group_of_version_1(path, machine):
    """Memory less idle file pages and CPU time, each from its own hierarchy."""
    base = "/sys/fs/cgroup"
    machine.texts = {
        f"{base}/memory/docker/memory.usage_in_bytes": "5000",
        f"{base}/memory/docker/memory.stat": "cache 3\ninactive_file 1\ntotal_inactive_file 2000",
        f"{base}/cpuacct/docker/cpuacct.usage": "1000",
    }
    group = CgroupSampler(path, machine, clock=machine.clock)
    assert group.found
    machine.texts[f"{base}/cpuacct/docker/cpuacct.usage"] = "4000"
    machine.now_ns = S
    assert group.sample() == {"time_ns": S, "interval_ns": S, "cgroup_bytes": 3000, "cpu_ns": 3000}


def test_a_control_group_of_version_2(machine):
    """The same from the one hierarchy, where CPU time is in microseconds."""
    base = "/sys/fs/cgroup/system.slice/docker.service"
    machine.texts = {
        f"{base}/memory.current": "5000",
        f"{base}/memory.stat": "anon 1\ninactive_file 2000",
        f"{base}/cpu.stat": "usage_usec 7\nuser_usec 5",
    }
    group = CgroupSampler("/system.slice/docker.service", machine, clock=machine.clock)
    machine.texts[f"{base}/cpu.stat"] = "usage_usec 9"
    assert group.sample() == {"time_ns": 0, "interval_ns": 0, "cgroup_bytes": 3000, "cpu_ns": 2000}
    machine.texts[f"{base}/cpu.stat"] = "usage_usec 1"
    assert group.sample()["cpu_ns"] == 0


@pytest.mark.parametrize("path", ["/g", "/sys/fs/cgroup/unified/g"])
def test_a_control_group_where_both_versions_are_mounted(path, machine):
    """One that has no CPU controller of version 1 has its CPU time in version 2; memory is version 1's."""
    base = "/sys/fs/cgroup"
    machine.texts = {f"{base}/unified/g/cpu.stat": "usage_usec 7", f"{base}/memory/g/memory.usage_in_bytes": "5"}
    group = CgroupSampler(path, machine, clock=machine.clock)
    machine.texts[f"{base}/unified/g/cpu.stat"] = "usage_usec 9"
    assert group.sample() == {"time_ns": 0, "interval_ns": 0, "cgroup_bytes": 5, "cpu_ns": 2000}


def test_a_control_group_without_a_controller_tells_what_it_can(machine):
    """Without the memory controller there is CPU time; without anything there is no group."""
    machine.texts = {"/sys/fs/cgroup/cpuacct/g/cpuacct.usage": "5"}
    assert math.isnan(CgroupSampler("g", machine).sample()["cgroup_bytes"])
    machine.texts = {}
    group = CgroupSampler("g", machine)
    assert not group.found
    assert group.sample() is None


# -- the watch ----------------------------------------------------------------------------------------------------


def complaints(engines, declared):
    said = []
    engine_samplers(engines, declared, said.append)
    return said


def test_what_cannot_be_watched_is_said():
    """No such control group, an engine that nobody described, a daemon that does not run: each has its words."""
    side = DaemonProcesses(names=frozenset({"nonesuch"}), sockets=("/nonesuch.sock",))
    (group,) = complaints({"docker": "/no/such/group"}, lambda _: None)
    assert "there is no control group /no/such/group" in group
    (unknown,) = complaints({"mine": ""}, lambda _: None)
    assert "overhead.cgroups.mine" in unknown
    (dead,) = complaints({"mine": ""}, lambda _: side)
    assert "none of its processes was found" in dead


def test_an_engine_without_a_daemon_is_no_complaint():
    """Plain processes and bare runtimes leave nothing behind that could be watched."""
    assert complaints({"native": ""}, lambda _: DaemonProcesses()) == []


def test_a_companion_is_looked_for_only_beside_a_root(machine):
    """A containerd that runs without Docker is not taken for Docker's."""
    machine.process(20, "containerd")
    machine.listening = {"/c.sock": 20}
    side = DaemonProcesses(
        frozenset({"dockerd", "containerd"}), companion_daemons=(CompanionDaemon("containerd", "-c", "/c.sock"),)
    )
    assert machine.sampler(side).sample() is None
