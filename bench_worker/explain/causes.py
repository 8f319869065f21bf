"""Names the functions of the Linux kernel that a thread can wait in: the plain cause, and how much that explains.

The names are those of ``/proc/PID/stack`` and ``wchan`` of Linux 5.10 to 6.18. docs/engines.rst lists the causes; a
test compares them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

ON_CPU: Final = "on CPU"
READY: Final = "the queue for a CPU"
SLEEP: Final = "a sleep or poll (timer)"
PROGRAM: Final = "the container's own program"
UNSEEN: Final = "nothing to be seen"
PROCESS: Final = "waiting for a process"

RUNNING_RANK: Final = 5
KERNEL_RANK: Final = 4
TIMER_RANK: Final = 3
HELPER_RANK: Final = 2
NO_RANK: Final = 0

LONGEST_POLL_MS: Final = 1000
"""A call with a longer timeout waits for its event, and the timeout is a precaution."""
LASTED_PART: Final = 0.8
"""So does one that ends after less of its timeout than this part: its event came."""

KERNEL_CAUSES: Final = {
    "RCU": (
        "synchronize_rcu",
        "synchronize_rcu_normal",
        "synchronize_rcu_expedited",
        "synchronize_rcu_tasks",
        "synchronize_rcu_tasks_generic",
        "__wait_rcu_gp",
        "wait_rcu_gp",
        "rcu_barrier",
        "synchronize_srcu",
        "__synchronize_srcu",
        "synchronize_net",
        "kvfree_rcu_barrier",
        "exp_funnel_lock",
        "synchronize_rcu_expedited_wait",
    ),
    "fsync": (
        "do_fsync",
        "vfs_fsync_range",
        "ext4_sync_file",
        "xfs_file_fsync",
        "btrfs_sync_file",
        "file_write_and_wait_range",
        "jbd2_log_wait_commit",
        "sync_filesystem",
        "sync_inodes_sb",
        "ksys_sync",
        "ovl_sync_fs",
        "ext4_sync_fs",
        "ext4_fsync_nojournal",
        "__sync_filesystem",
    ),
    "the journal of the file system": (
        "jbd2_journal_start",
        "start_this_handle",
        "wait_transaction_locked",
        "add_transaction_credits",
        "do_get_write_access",
        "jbd2_journal_get_write_access",
    ),
    "reading or writing a disk": (
        "folio_wait_bit_common",
        "folio_wait_writeback",
        "wait_on_page_bit",
        "filemap_read",
        "blkdev_issue_flush",
        "submit_bio_wait",
        "balance_dirty_pages",
        "bit_wait_io",
        "out_of_line_wait_on_bit",
        "__wait_on_buffer",
        "__bread_gfp",
        "blk_mq_get_tag",
        "rq_qos_wait",
    ),
    "a lock of the network": ("rtnl_lock", "rtnl_lock_killable", "rtnetlink_rcv_msg", "rtnl_newlink", "rtnl_dellink"),
    "network namespace": ("copy_net_ns", "setup_net", "cleanup_net", "register_pernet_subsys"),
    "the end of a PID namespace": ("zap_pid_ns_processes",),
    "mounts": (
        "namespace_lock",
        "path_mount",
        "do_mount",
        "path_umount",
        "do_umount",
        "cleanup_mnt",
        "mnt_want_write",
    ),
    "control groups": (
        "cgroup_kn_lock_live",
        "cgroup_mkdir",
        "cgroup_rmdir",
        "cgroup_attach_task",
        "cgroup_procs_write",
        "__cgroup_procs_write",
        "cgroup_attach_lock",
        "cgroup_threadgroup_change_begin",
        "freezer_write",
        "cgroup_freeze",
    ),
    "memory": ("try_to_free_pages", "mem_cgroup_handle_over_high", "__alloc_pages_slowpath", "shrink_node"),
    "the frozen control group": ("__refrigerator", "cgroup_freezer_wait"),
    "another file system operation": ("open_last_lookups", "do_unlinkat", "do_mkdirat", "do_rmdir", "do_renameat2"),
}
"""The cause by functions of the kernel, wherever in the stack they are; the first cause that matches counts."""

CONTEXTS: Final = {
    "network namespace": (
        "copy_net_ns",
        "setup_net",
        "cleanup_net",
        "ops_undo_list",
        "ops_exit_list",
        "dev_change_net_namespace",
        "__dev_change_net_namespace",
    ),
    "network device": (
        "register_netdevice",
        "unregister_netdevice_many_notify",
        "unregister_netdevice_many",
        "unregister_netdevice_queue",
        "rtnl_dellink",
        "rtnl_newlink",
        "veth_newlink",
    ),
    "firewall": ("nf_tables_netlink_event", "nfnetlink_rcv", "do_replace", "xt_replace_table", "__do_replace"),
    "bridge": ("br_add_if", "br_del_if"),
    "mounts": (
        "path_mount",
        "do_mount",
        "path_umount",
        "do_umount",
        "ksys_umount",
        "cleanup_mnt",
        "namespace_unlock",
    ),
    "control groups": (
        "cgroup_mkdir",
        "cgroup_rmdir",
        "cgroup_procs_write",
        "cgroup_attach_task",
        "cgroup_file_write",
        "cgroup_procs_write_start",
        "cgroup_attach_lock",
    ),
    "device rules (BPF)": ("__sys_bpf", "bpf_prog_attach", "cgroup_bpf_attach"),
    "memory protection": ("seccomp_set_mode_filter", "do_seccomp"),
    "namespaces": ("create_new_namespaces", "unshare_nsproxy_namespaces", "copy_namespaces"),
}
"""What a wait is part of, by functions further out in the stack."""

TIMERS: Final = ("hrtimer_nanosleep", "do_nanosleep", "common_nsleep")
"""A sleep by its name; it counts in a process of one thread, since the monitor thread of Go sleeps all the time."""
INNER: Final = 3
"""How many of the innermost functions say that a wait is an idle one."""
TIMED_CALLS: Final = ("do_epoll_wait", "ep_poll", "do_sys_poll")
"""Calls that a timer ends where they have a short timeout: how the sleep of a program in Go looks."""
HELPER_CAUSES: Final = {
    PROCESS: ("do_wait", "kernel_wait4", "kernel_waitid"),
    "a pipe": (
        "pipe_read",
        "anon_pipe_read",
        "pipe_write",
        "anon_pipe_write",
        "pipe_wait",
        "fifo_open",
        "wait_for_partner",
    ),
    "a socket": (
        "unix_stream_read_generic",
        "unix_stream_data_wait",
        "__skb_wait_for_more_packets",
        "sk_wait_data",
        "inet_csk_accept",
        "__skb_recv_udp",
        "netlink_recvmsg",
    ),
    "a lock": ("futex_wait_queue", "futex_wait_queue_me", "futex_do_wait", "futex_wait", "__futex_wait"),
    "an event": ("do_epoll_wait", "ep_poll", "do_sys_poll", "do_select", "poll_schedule_timeout", "do_signalfd4"),
}
"""Idle waits: of a process that began with the operation they count, since it was not there before."""


class Cause(Struct, frozen=True):
    """What a thread waits for."""

    rank: int
    """The cause of the highest rank stands for the instant."""
    name: str
    where: str = ""
    """The system call, and the functions of the kernel that say so."""


_CALL_PREFIXES: Final = ("__x64_sys_", "__arm64_sys_", "__se_sys_", "__do_sys_", "__ia32_sys_", "ksys_")


def system_call(functions: Sequence[str]) -> str:
    """Return the system call at the outer end of a stack; empty where it shows none."""
    for function in reversed(functions):
        for prefix in _CALL_PREFIXES:
            if function.startswith(prefix):
                return function.removeprefix(prefix)
    return ""


def _innermost(table: dict[str, tuple[str, ...]], functions: Sequence[str]) -> str:
    """Return the cause of the innermost function that a table has; empty where it has none."""
    by_function = {function: cause for cause, names in table.items() for function in names}
    return next((by_function[function] for function in functions if function in by_function), "")


def _first_of(table: dict[str, tuple[str, ...]], functions: Sequence[str]) -> str:
    """Return the first cause of a table that has any of these functions; empty where it has none."""
    there = frozenset(functions)
    return next((cause for cause, names in table.items() if not there.isdisjoint(names)), "")


def cause_of(
    state: str, functions: Sequence[str], timeout_ms: int, *, lasted_ms: float, threads: int, helper: bool
) -> Cause:
    """Return the cause for a thread in a state (that of ``/proc/PID/stat``), which waits in functions of the kernel.

    `lasted_ms` is how long it waited in all, `threads` how many its process has, `helper` whether this began after
    the sampling. With a rank of `NO_RANK` it is idle.
    """
    if state == "R":
        return Cause(RUNNING_RANK, ON_CPU)
    where = " < ".join(functions[:INNER])
    call = system_call(functions)
    where = f"{call}: {where}" if call else where
    inner = functions[0] if functions else ""
    if inner in TIMERS:
        return Cause(TIMER_RANK if threads == 1 else NO_RANK, SLEEP, where)
    timed = not frozenset(functions[:INNER]).isdisjoint(TIMED_CALLS)
    if timed and 0 < timeout_ms <= LONGEST_POLL_MS and lasted_ms >= LASTED_PART * timeout_ms:
        return Cause(TIMER_RANK, SLEEP, where)
    # An idle wait is the innermost function; the causes of the kernel may be further out.
    if idle := _innermost(HELPER_CAUSES, functions[:INNER]):
        return Cause(HELPER_RANK if helper else NO_RANK, idle, where)
    if name := _first_of(KERNEL_CAUSES, functions):
        around = _innermost(CONTEXTS, functions)
        return Cause(KERNEL_RANK, f"{name} ({around})" if around not in ("", name) else name, where)
    if state == "D":
        return Cause(KERNEL_RANK, f"in the kernel: {inner or 'unknown'}", where)
    return Cause(HELPER_RANK if helper else NO_RANK, f"in the kernel: {inner}" if inner else UNSEEN, where)
