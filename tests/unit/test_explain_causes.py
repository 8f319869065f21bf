"""What a stack of the kernel means in plain words, and which thread stands for an instant of an operation."""

import msgspec
import pytest
from documents import ROOT, literals

from bench_worker.explain.attribution import Recording, Span, explain
from bench_worker.explain.causes import (
    HELPER_CAUSES,
    HELPER_RANK,
    KERNEL_CAUSES,
    KERNEL_RANK,
    NO_RANK,
    ON_CPU,
    PROGRAM,
    READY,
    RUNNING_RANK,
    SLEEP,
    TIMER_RANK,
    UNSEEN,
    cause_of,
    system_call,
)
from bench_worker.explain.thread_sampler import functions_of, timeout_of

STACK = """\
[<0>] wait_for_completion_state+0x1b/0x30
[<0>] __wait_rcu_gp+0x11e/0x130
[<0>] synchronize_rcu_normal+0x9b/0xe0
[<0>] setup_net+0x2a0/0x300
[<0>] copy_net_ns+0x1a8/0x300
[<0>] create_new_namespaces+0x11b/0x2f0
[<0>] __x64_sys_unshare+0xe/0x20
[<0>] do_syscall_64+0x71/0x290
[<0>] entry_SYSCALL_64_after_hwframe+0x76/0x7e
"""
"""As /proc/PID/stack has it while a network namespace is made."""
RCU = functions_of(STACK)
IDLE = ("do_epoll_wait", "do_compat_epoll_pwait", "__x64_sys_epoll_pwait")
FUTEX = ("futex_do_wait", "__futex_wait", "futex_wait", "do_futex", "__x64_sys_futex")
FSYNC = ("jbd2_log_wait_commit", "ext4_sync_file", "do_fsync", "__x64_sys_fsync")


def of(state, functions, timeout=-1, *, lasted_ms=300.0, threads=8, helper=False):
    return cause_of(state, functions, timeout, lasted_ms=lasted_ms, threads=threads, helper=helper)


def test_a_stack_becomes_its_functions_the_innermost_first():
    """Offsets and addresses are left out, and what a compiler adds to a part of a function."""
    assert functions_of("[<0>] poll_schedule_timeout.constprop.0+0x1/0x2\n") == ("poll_schedule_timeout",)
    assert RCU[:3] == ("wait_for_completion_state", "__wait_rcu_gp", "synchronize_rcu_normal")
    assert system_call(RCU) == "unshare"


def test_the_rcu_wait_of_a_network_namespace_has_its_name():
    """The cause is RCU, and what it is part of is the network namespace."""
    cause = of("D", RCU)
    assert (cause.rank, cause.name) == (KERNEL_RANK, "RCU (network namespace)")
    assert cause.where.startswith("unshare: wait_for_completion_state < __wait_rcu_gp")


def test_a_lock_of_network_namespaces_is_named_by_them():
    """Without RCU in the stack it is the namespace itself."""
    functions = ("rwsem_down_read_slowpath", "down_read_killable", "copy_net_ns", "create_new_namespaces")
    assert of("D", functions).name == "network namespace"


@pytest.mark.parametrize(
    ("state", "functions", "timeout", "threads", "helper", "rank", "name"),
    [
        ("R", (), -1, 8, False, RUNNING_RANK, ON_CPU),
        ("D", FSYNC, -1, 8, False, KERNEL_RANK, "fsync"),
        ("D", ("submit_bio_wait", *FSYNC[1:]), -1, 8, False, KERNEL_RANK, "fsync"),
        ("D", ("submit_bio_wait", "ext4_free_blocks"), -1, 8, False, KERNEL_RANK, "reading or writing a disk"),
        (
            "D",
            ("synchronize_rcu_normal", "cgroup_procs_write_start"),
            -1,
            8,
            False,
            KERNEL_RANK,
            "RCU (control groups)",
        ),
        ("S", ("poll_schedule_timeout", "do_sys_poll"), 100, 1, False, TIMER_RANK, SLEEP),
        ("S", IDLE, -1, 8, False, NO_RANK, "an event"),
        ("S", IDLE, 250, 8, False, TIMER_RANK, SLEEP),
        ("S", IDLE, 60_000, 8, False, NO_RANK, "an event"),
        ("S", IDLE, 0, 8, False, NO_RANK, "an event"),
        ("S", ("hrtimer_nanosleep", "common_nsleep"), -1, 1, False, TIMER_RANK, SLEEP),
        ("S", ("hrtimer_nanosleep", "common_nsleep"), -1, 9, False, NO_RANK, SLEEP),
        ("S", FUTEX, -1, 8, False, NO_RANK, "a lock"),
        ("S", FUTEX, -1, 8, True, HELPER_RANK, "a lock"),
        ("S", ("do_wait", "kernel_wait4"), -1, 1, True, HELPER_RANK, "waiting for a process"),
        ("S", ("anon_pipe_read", "vfs_read"), -1, 1, True, HELPER_RANK, "a pipe"),
        ("D", ("some_new_function", "x"), -1, 1, False, KERNEL_RANK, "in the kernel: some_new_function"),
        ("D", (), -1, 1, False, KERNEL_RANK, "in the kernel: unknown"),
    ],
)
def test_each_kind_of_wait_has_its_rank_and_name(state, functions, timeout, threads, helper, rank, name):
    """Idle waits of daemons have none; a timer counts where its timeout is short; Go's monitor thread never does."""
    cause = of(state, functions, timeout, threads=threads, helper=helper)
    assert (cause.rank, cause.name) == (rank, name)


@pytest.mark.parametrize(
    ("function", "call", "timeout"),
    [
        ("do_epoll_wait", "281 0x4 0x7ffca3153100 0x80 0xfa 0x0 0x8 0x7ffca31530a0 0x561a66a1", 250),
        ("do_epoll_wait", "281 0x4 0x7ffca3153100 0x80 0xffffffffffffffff 0x0 0x8 0x7ffca31530a0 0x561a", -1),
        ("do_epoll_wait", "281 0x4 0x7ffca3153100 0x80 0xffffffff 0x0 0x8 0x7ffca31530a0 0x561a", -1),
        ("do_sys_poll", "7 0x7ffca3153100 0x2 0x3e8 0x0 0x8 0x7 0x7ffca31530a0 0x561a", 1000),
        ("futex_do_wait", "202 0x561a69d353f8 0x80 0x0 0x0 0x0 0x0 0x7ffc 0x561a", -1),
        ("do_epoll_wait", "running", -1),
    ],
)
def test_the_timeout_of_a_call_is_read_from_its_arguments(function, call, timeout):
    """Those of epoll and poll are numbers of milliseconds, negative for none; others are in the process's memory."""
    assert timeout_of(("poll_schedule_timeout", function), call) == timeout


def test_the_document_lists_each_cause():
    """docs/engines.rst has every cause that the kernel's functions lead to."""
    known = literals(ROOT / "docs" / "engines.rst")
    assert [cause for table in (KERNEL_CAUSES, HELPER_CAUSES) for cause in table if cause not in known] == []


# -- which thread stands for an instant ------------------------------------------------------------------------------

MS = 1_000_000


class Seen:
    """A recording, made look by look: a millisecond each."""

    def __init__(self, *first):
        self.first = list(first)
        self.waits = []
        self.owners = {}
        self.looks = []

    def wait(self, state, functions=(), timeout=-1, name="dockerd"):
        one = (state, name, list(functions), timeout)
        if one not in self.waits:
            self.waits.append(one)
        return self.waits.index(one)

    def look(self, *changes, programs=0):
        """Each change is (process, thread, wait), and how long the thread has run and waited for a CPU, if given."""
        self.owners |= {thread: process for process, thread, *_ in changes}
        rows = [(thread, wait, *(times or (0, 0))) for _, thread, wait, *times in changes]
        self.looks.append((len(self.looks) * MS, rows, programs))
        return self

    def recording(self):
        given = (self.waits, list(self.owners.items()), self.first, self.looks)
        return msgspec.convert(
            dict(zip(("waits", "owners", "first", "looks"), given, strict=True), stacks=True, cpu_s=0.001, cut=False),
            Recording,
        )


def causes(found, operation=0):
    return {
        (one["cause"], one["process"]): round(1000 * one["seconds"], 3)
        for one in found["phases"][operation]["causes"]
    }


def test_each_instant_has_the_cause_of_the_highest_rank():
    """What runs comes before what is blocked in the kernel, that before a timer; idle threads count for nothing."""
    seen = Seen(1)
    idle, run, rcu, timer = (
        seen.wait("S", FUTEX),
        seen.wait("R"),
        seen.wait("D", RCU, name="runc"),
        seen.wait("S", IDLE, 1),
    )
    seen.look((1, 1, idle), (1, 2, idle))
    seen.look((1, 1, run), (2, 20, rcu))
    seen.look((1, 1, idle))
    seen.look((1, 2, timer))
    seen.look((2, 20, -1))
    seen.look((1, 2, idle), programs=1)
    seen.look(programs=0)
    seen.look()
    found = explain(seen.recording(), [Span(1, "start", 0, 7 * MS)])
    assert causes(found) == {
        ("RCU (network namespace)", "runc"): 2.0,
        (UNSEEN, ""): 2.0,
        (ON_CPU, "dockerd"): 1.0,
        (SLEEP, "dockerd"): 1.0,
        (PROGRAM, ""): 1.0,
    }


def test_a_call_whose_event_came_before_its_timeout_is_no_poll():
    """A precaution of a quarter of a second that ends after 2 ms waited for its event."""
    assert of("S", IDLE, 250, lasted_ms=2.0).rank == NO_RANK
    assert of("S", IDLE, 250, lasted_ms=249.0).rank == TIMER_RANK


def test_time_in_which_a_thread_waited_for_a_cpu_is_told_apart():
    """A busy host makes an engine slower without a word of the engine: schedstat says how much of it."""
    seen = Seen(1)
    run, idle = seen.wait("R"), seen.wait("S", FUTEX)
    seen.look((1, 1, run, 0, 0))
    seen.look()
    seen.look((1, 1, idle, MS // 2, 3 * MS // 2))
    seen.look()
    found = explain(seen.recording(), [Span(1, "start", 0, 2 * MS)])
    assert causes(found) == {(READY, "dockerd"): 1.5, (ON_CPU, "dockerd"): 0.5}
    assert (found["phases"][0]["cpu_s"], found["phases"][0]["waiting_s"]) == (0.0005, 0.0015)


def test_the_causes_of_an_operation_add_up_to_it():
    """Looks that lie across its begin and end count for the part within; time on CPU and blocked make up the rest."""
    seen = Seen(1)
    run, fsync = seen.wait("R"), seen.wait("D", FSYNC)
    seen.look((1, 1, run))
    seen.look((1, 1, fsync))
    seen.look((1, 1, run))
    seen.look()
    spans = [Span(1, "create", MS // 2, 2 * MS), Span(1, "start", 2 * MS, 5 * MS // 2)]
    found = explain(seen.recording(), spans)
    assert causes(found) == {("fsync", "dockerd"): 1.0, (ON_CPU, "dockerd"): 0.5}
    create = found["phases"][0]
    assert (create["total_s"], create["cpu_s"], create["waiting_s"]) == (0.0015, 0.0005, 0.001)
    assert causes(found, 1) == {(ON_CPU, "dockerd"): 0.5}


def test_the_job_that_is_drawn_is_the_median_one():
    """Its operations begin at 0, and stretches of one cause and process are one segment."""
    seen = Seen(1)
    run, fsync = seen.wait("R"), seen.wait("D", FSYNC)
    for place in range(12):
        seen.look((1, 1, fsync if place in (4, 5) else run))
    spans = [Span(1, "run", 0, MS), Span(2, "run", 3 * MS, 7 * MS), Span(3, "run", 1 * MS, 11 * MS)]
    found = explain(seen.recording(), spans)
    (phase,) = found["job"]
    assert (phase["operation"], phase["start_s"], phase["end_s"]) == ("run", 0.0, 0.004)
    segments = [[one["start_s"], one["end_s"], one["cause"], one["process"]] for one in phase["segments"]]
    assert segments == [
        [0.0, 0.001, ON_CPU, "dockerd"],
        [0.001, 0.003, "fsync", "dockerd"],
        [0.003, 0.004, ON_CPU, "dockerd"],
    ]
    assert found["phases"][0]["jobs"] == 3


def test_a_process_that_began_with_the_trial_explains_an_instant_by_what_it_waits_for():
    """A pipe is an idle wait of a daemon, and that of a runtime which was not there before."""
    seen = Seen(1)
    pipe = seen.wait("S", ("anon_pipe_read", "vfs_read"), name="runc")
    seen.look((1, 1, pipe))
    seen.look((2, 20, pipe))
    seen.look()
    found = explain(seen.recording(), [Span(1, "start", 0, 2 * MS)])
    assert causes(found) == {(UNSEEN, ""): 1.0, ("a pipe", "runc"): 1.0}
