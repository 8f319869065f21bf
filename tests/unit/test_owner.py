"""Whether the process is alive that a leftover names: alive, dead or unknown, by faked trees of /proc."""

import os
import subprocess
import sys

import pytest
from deadlines import ANSWER_S
from msgspec.structs import replace

from bench_worker import owner as owners
from bench_worker.owner import INITIAL_PID_NAMESPACE, Owner, OwnerJudge, State, own_label

BOOT, OTHER_BOOT = "73c6a59e-4522-49f6-8903-482be2e61c5d", "00000000-4522-49f6-8903-482be2e61c5d"
BOOTED_S = 1_000_000
HOST, INNER, SIBLING = INITIAL_PID_NAMESPACE, 4026532001, 4026532002
"""PID namespaces: the host's, one below it, and another one below it."""
MOUNTS = 4026531832
TICKS_S = os.sysconf("SC_CLK_TCK")

OWNER = Owner(BOOT, BOOTED_S + 500, 70, 4242, HOST, MOUNTS)


class Proc:
    """A tree like /proc, of a process with the number `pid` in the namespace `namespace`."""

    def __init__(self, root, namespace=HOST, pid=100, inner=None, boot=BOOT):
        self.root = root
        boots = root / "sys" / "kernel" / "random"
        boots.mkdir(parents=True)
        (boots / "boot_id").write_text(f"{boot}\n")
        self.add(1, namespace=namespace, ticks=1)
        self.add(pid, namespace=namespace, ticks=9000, inner=inner)
        (root / "self").symlink_to(str(pid))

    def add(self, pid, *, ticks, namespace=HOST, inner=None, state="S", mounts=MOUNTS):
        """Add a process; `inner` is its number in its own PID namespace, if that is another one."""
        folder = self.root / str(pid)
        (folder / "ns").mkdir(parents=True)
        fields = [state, *["0"] * 18, str(ticks), "0"]
        (folder / "stat").write_text(f"{pid} (a) b) {' '.join(fields)}\n")
        numbers = f"{pid}" if inner is None else f"{pid}\t{inner}"
        (folder / "status").write_text(f"Name:\ta b\nNSpid:\t{numbers}\n")
        (folder / "ns" / "pid").symlink_to(f"pid:[{namespace}]")
        (folder / "ns" / "mnt").symlink_to(f"mnt:[{mounts}]")

    def judge(self, label=OWNER, exists=lambda _pid: True):
        """Judge one owner as that process would."""
        return OwnerJudge(self.root, booted_s=BOOTED_S, exists=exists).judge(str(label))

    def state(self, label=OWNER, **how):
        """Return what is known of one owner."""
        return self.judge(label, **how).state


@pytest.fixture
def make(tmp_path):
    return lambda **how: Proc(tmp_path / "proc", **how)


def test_a_label_says_all_that_is_needed_and_comes_back_as_it_was():
    """What is written on a container is read again; any other text names nobody."""
    assert Owner.parse(str(OWNER)) == OWNER
    assert len(own_label()) < 256
    for text in ("", "nonsense", f"{OWNER}x", f"{OWNER}.1", str(OWNER).replace("70", "-70"), "../../x.1.2.3.4.5"):
        assert Owner.parse(text) is None


def test_this_process_is_alive_and_one_that_has_ended_is_dead():
    """On the real /proc: a child that is there, then a zombie, then gone, and a later one with the same number."""
    script = "import sys; from bench_worker.owner import own_label; print(own_label(), flush=True); sys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    label = child.stdout.readline().strip()
    try:
        assert Owner.parse(label).pid == child.pid
        assert [OwnerJudge().judge(one).state for one in (own_label(), label)] == [State.ALIVE] * 2
        later = replace(Owner.parse(own_label()), start_ticks=1)
        assert OwnerJudge().judge(str(later)).state is State.DEAD
        child.stdin.close()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert OwnerJudge().judge(label).state is State.DEAD, "a zombie"
    finally:
        child.kill()
        child.wait(ANSWER_S)
        child.stdout.close()
    assert OwnerJudge().judge(label).state is State.DEAD


def test_a_copy_of_a_process_is_another_owner():
    """A load process is a fork of its agent: the label that the agent may have made is not the copy's."""
    assert own_label()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writer, own_label().encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as told:
        assert Owner.parse(told.read()).pid == pid
    os.waitpid(pid, 0)


def test_an_owner_in_our_pid_namespace(make):
    """Alive with that number and that start; dead as a zombie, with another start, and where there is none."""
    proc = make()
    assert proc.state() is State.DEAD
    proc.add(70, ticks=4242)
    assert proc.state() is State.ALIVE
    assert proc.judge().reason == "its worker is alive (process 70)"
    elsewhere = proc.judge(replace(OWNER, mount_namespace=MOUNTS + 1))
    assert elsewhere.reason == "its worker is alive (process 70, in another mount namespace)"
    assert proc.state(replace(OWNER, start_ticks=4241)) is State.DEAD
    proc.add(71, ticks=4242, state="Z")
    assert proc.state(replace(OWNER, pid=71)) is State.DEAD


@pytest.mark.parametrize("gone", ["stat", "folder"])
def test_a_proc_that_hides_others_proves_nothing_but_that_a_number_is_free(make, gone):
    """With ``hidepid`` even the first process is hidden; kill(2) says whether a number is taken."""
    proc = make()
    for pid in ("1",) if gone == "folder" else ("1", "70"):
        if pid == "70":
            proc.add(70, ticks=4242)
        (proc.root / pid / "stat").unlink()
    assert proc.state(exists=lambda _pid: True) is State.UNKNOWN
    assert proc.state(exists=lambda _pid: False) is State.DEAD
    assert proc.state(replace(OWNER, pid_namespace=INNER)) is State.UNKNOWN


def test_from_the_host_all_containers_are_judged(make):
    """A process of a namespace below is there, with its number in there and its start; else it has ended."""
    proc, inside = make(), replace(OWNER, pid=7, pid_namespace=INNER)
    assert proc.state(inside) is State.DEAD
    proc.add(300, ticks=4242, namespace=SIBLING, inner=7)
    proc.add(301, ticks=4243, namespace=INNER, inner=7)
    proc.add(302, ticks=4242, namespace=INNER, inner=8)
    assert proc.state(inside) is State.DEAD
    proc.add(303, ticks=4242, namespace=INNER, inner=7)
    assert proc.state(inside) is State.ALIVE
    assert "process 303, 7 in its own PID namespace" in proc.judge(inside).reason


def test_the_namespace_of_another_users_process_need_not_be_seen(make):
    """Its number in there and its start tell who it is; everybody may read those."""
    proc, inside = make(), replace(OWNER, pid=7, pid_namespace=INNER)
    proc.add(303, ticks=4242, namespace=INNER, inner=7)
    link = proc.root / "303" / "ns" / "pid"
    real = owners._namespace

    def refused(path):
        if path == link:
            raise PermissionError(path)
        return real(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owners, "_namespace", refused)
        assert proc.state(inside) is State.ALIVE
        assert proc.state(replace(inside, start_ticks=1)) is State.DEAD


def test_in_a_container_only_what_is_seen_is_judged(make):
    """Of the host and of other containers nothing is known; of containers below ours, while they have a process."""
    proc, below = make(namespace=INNER), replace(OWNER, pid=7, pid_namespace=SIBLING)
    assert proc.state(replace(OWNER, pid_namespace=INNER)) is State.DEAD
    assert proc.state() is State.UNKNOWN
    assert proc.state(below) is State.UNKNOWN
    assert f"process 7 of PID namespace {SIBLING}" in proc.judge(below).reason
    proc.add(300, ticks=4000, namespace=SIBLING, inner=1)
    assert proc.state(below) is State.DEAD
    proc.add(307, ticks=4242, namespace=SIBLING, inner=7)
    assert proc.state(below) is State.ALIVE


def test_a_proc_of_another_namespace_is_not_taken_for_ours(make):
    """`unshare --pid` without a /proc of its own: the numbers in it are the host's."""
    proc = make(pid=100, inner=1)
    self_link = proc.root / "100" / "ns" / "pid"
    self_link.unlink()
    self_link.symlink_to(f"pid:[{INNER}]")
    proc.add(70, ticks=4242)
    ours = replace(OWNER, pid_namespace=INNER)
    assert proc.state() is State.ALIVE, "of the host, which is shown"
    assert proc.state(ours) is State.DEAD, "70 in there is not 70 out here"
    proc.add(400, ticks=4242, namespace=INNER, inner=70)
    assert proc.state(ours) is State.ALIVE


def test_a_proc_without_this_process_proves_nothing(make):
    """A mount of namespaces that we are not in."""
    proc = make()
    (proc.root / "self").unlink()
    assert proc.state() is State.UNKNOWN


def test_another_boot(make):
    """What was made before this kernel started is dead; later it was made on another machine, with its own kernel."""
    proc, before = make(), replace(OWNER, boot=OTHER_BOOT, noted_s=BOOTED_S - 500)
    proc.add(70, ticks=4242)
    assert proc.state(before) is State.DEAD
    assert proc.state(replace(before, noted_s=BOOTED_S + 500)) is State.UNKNOWN
    assert proc.state(replace(before, boot=f"private-{OTHER_BOOT}")) is State.UNKNOWN


def test_a_boot_id_that_a_container_was_given_is_marked(make):
    """nspawn and LXC mount a file over the kernel's: it differs from the host's without a boot in between."""
    proc = make()
    assert owners.boot_id(proc.root) == BOOT
    link = proc.root / "sys" / "kernel" / "random" / "boot_id"
    link.unlink()
    link.symlink_to("/proc/sys/kernel/random/boot_id")  # a file of another file system
    assert owners.boot_id(proc.root).startswith("private-")


def test_a_clock_of_its_own_does_not_make_a_process_another(make):
    """In a time namespace all starts are read later by the same span, which is taken off again."""
    proc = make()
    (proc.root / "100" / "timens_offsets").write_text("monotonic 0 0\nboottime 1000 500000000\n")
    proc.add(70, ticks=4242 + 1000 * TICKS_S + TICKS_S // 2)
    assert proc.state() is State.ALIVE
    assert proc.state(replace(OWNER, start_ticks=4200)) is State.DEAD


def test_what_names_no_process_is_unknown(make):
    """Nothing is proved without a label, nor by one that somebody else wrote."""
    proc = make()
    for text in ("", "nonsense"):
        assert proc.judge(text).state is State.UNKNOWN
