"""The sampler on recorded hosts: parsers, what is counted once, deltas, and columns."""

import math

import pytest
from recorded_host import RecordedHostFiles

from bench_common.errors import InfrastructureError
from bench_worker.host.procfs import (
    CpuTicks,
    LiveHostFiles,
    parse_diskstats,
    parse_loadavg,
    parse_meminfo,
    parse_net_dev,
    parse_stat,
    physical_disks,
    physical_interfaces,
)
from bench_worker.host.sampler import COLUMNS, UNITS, HostSampler, cpu_row

STAT = """\
cpu  5017 3 1106 191220 397 2 96 15 7 1
cpu0 2971 3 619 95021 263 2 35 8 7 1
cpu1 2045 0 487 96199 134 0 60 7 0 0
intr 400341 0 0 0
ctxt 576040
btime 1795224121
processes 6930
procs_running 4
procs_blocked 1
softirq 196897 0 15490
"""

DISKSTATS = """\
   7       0 loop0 11 0 90 1 0 0 0 0 0 1 1 0 0 0 0 0 0
   8       0 sda 31876 7343 2786802 7865 13201 18604 1871360 4248 0 4440 12400 4075 34 309904 236 1526 49
   8       1 sda1 31000 7000 2786000 7800 13200 18604 1871360 4248 0 4440 12400
 259       0 nvme0n1 10 0 80 1 20 0 160 2 0 3 3 0 0 0 0
 259       1 nvme0n1p1 9 0 72 1 20 0 160 2 0 3 3 0 0 0 0
 253       0 dm-0 31000 0 2786000 7800 13200 0 1871360 4248 0 4440 12400
   9       0 md0 5 0 5 0 5 0 5 0 0 0 0
"""

NET_DEV = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:    3193      29    0    0    0     0          0         0     3193      29    0    0    0     0       0          0
  eth0:189465078    5777    0    0    0     0          0         0   326334    3491    0    0    0     0       0          0
docker0:       7       1    0    0    0     0          0         0        9       1    0    2    0     0       0          0
vethab12:      7       1    0    0    0     0          0         0        9       1    0    2    0     0       0          0
"""  # noqa: E501  as the kernel prints it

MEMINFO = """\
MemTotal:       24731708 kB
MemFree:        24271216 kB
MemAvailable:   24354364 kB
Buffers:            5072 kB
Cached:           260020 kB
SwapTotal:         1000 kB
SwapFree:           400 kB
Shmem:              8856 kB
HugePages_Total:       3
"""

SYS = {
    "/sys/block/sda/size": "1",
    "/sys/block/loop0/size": "1",
    "/sys/block/dm-0/size": "1",
    "/sys/block/md0/size": "1",
    "/sys/block/nvme0n1/size": "1",
    "/sys/block/sda/device/model": "DISK",
    "/sys/block/nvme0n1/device/model": "NVME",
    "/sys/class/net/lo/type": "772",
    "/sys/class/net/eth0/device/vendor": "0x1",
    "/sys/class/net/docker0/bridge/stp_state": "0",
    "/sys/class/net/vethab12/type": "1",
}

HOST = {
    "/proc/stat": STAT,
    "/proc/diskstats": DISKSTATS,
    "/proc/net/dev": NET_DEV,
    "/proc/meminfo": MEMINFO,
    "/proc/loadavg": "0.31 0.20 0.10 1/105 6933\n",
}


def test_stat_folds_nice_and_interrupts():
    """nice counts as user, interrupts as system; guests' time, which user holds already, is not added again."""
    stat = parse_stat(STAT)
    assert stat.cpu == CpuTicks(user=5020, system=1106 + 2 + 96, iowait=397, steal=15, idle=191220)
    assert stat.cpus == 2
    assert stat.running == 4


def test_stat_of_an_old_kernel():
    """A kernel that knows neither iowait nor steal gives 0 for them."""
    assert parse_stat("cpu 1 2 3 4\ncpu0 1 2 3 4\n").cpu == CpuTicks(3, 3, 0, 0, 4)
    assert parse_stat("cpu 1 2 3 4 5 6 7\n").cpu == CpuTicks(3, 16, 5, 0, 4)


@pytest.mark.parametrize("text", ["", "intr 1\n", "cpu 1 2\n", "cpu a b c d\n"])
def test_stat_that_is_none_is_refused(text):
    """A text that is not /proc/stat raises with what it was."""
    with pytest.raises(ValueError, match="/proc/stat"):
        parse_stat(text)


def test_meminfo_is_bytes():
    """Values are bytes, used is what cannot be had."""
    memory = parse_meminfo(MEMINFO)
    assert memory.total == 24731708 * 1024
    assert memory.available == 24354364 * 1024
    assert memory.used == (24731708 - 24354364) * 1024
    assert memory.swap_used == 600 * 1024


def test_meminfo_before_memavailable():
    """An old kernel's available memory is free, buffers and droppable cache; never more than there is."""
    old = "\n".join(line for line in MEMINFO.splitlines() if "Available" not in line)
    assert parse_meminfo(old).available == (24271216 + 5072 + 260020 - 8856) * 1024
    assert parse_meminfo("MemTotal: 10 kB\nMemFree: 12 kB\n").available == 10 * 1024
    with pytest.raises(ValueError, match="no MemTotal"):
        parse_meminfo("nonsense")


def test_diskstats_of_old_and_new_kernels():
    """Lines of 14, 18 and 20 words are read alike; the 7 words of an ancient partition are skipped."""
    disks = parse_diskstats(DISKSTATS + "   8 2 sda2 1 2 3 4\n")
    assert disks["sda"].read_bytes == 2786802 * 512
    assert disks["sda"].written_bytes == 1871360 * 512
    assert (disks["sda"].read_operations, disks["sda"].write_operations) == (31876, 13201)
    assert "sda2" not in disks
    with pytest.raises(ValueError, match="not numbers"):
        parse_diskstats("8 0 sda x 0 0 0 0 0 0 0 0 0 0")


def test_net_dev_without_space_and_with_aliases():
    """A number glued to the colon is read, and so is the colon in an alias's name."""
    net = parse_net_dev(NET_DEV + "eth0:1: 5 1 0 0 0 0 0 0 6 1 0 0 0 0 0 0\n")
    assert net["eth0"].received_bytes == 189465078
    assert net["eth0"].sent_bytes == 326334
    assert net["eth0:1"].sent_bytes == 6
    with pytest.raises(ValueError, match="16 numbers"):
        parse_net_dev("eth0: 1 2\n")


def test_loadavg_is_the_first_number():
    """The load of one minute comes first; anything else is refused."""
    assert parse_loadavg("0.31 0.20 0.10 1/105 6933") == 0.31
    with pytest.raises(ValueError, match="loadavg"):
        parse_loadavg("")


def test_whole_physical_disks_only():
    """Partitions, loops, device mapper and RAID are not counted beside the disks that they stand on."""
    names = parse_diskstats(DISKSTATS)
    assert physical_disks(RecordedHostFiles(SYS), names) == {"sda", "nvme0n1"}


def test_disks_by_name_where_sysfs_is_hidden():
    """Without sysfs the names alone give the same answer."""
    assert physical_disks(RecordedHostFiles(), parse_diskstats(DISKSTATS)) == {"sda", "nvme0n1"}
    assert physical_disks(RecordedHostFiles(), ["vda", "mmcblk0", "mmcblk0p1", "zram0", "xvda1"]) == {
        "vda",
        "mmcblk0",
        "xvda1",
    }


def test_hidden_path_of_a_multipath_disk_is_not_counted():
    """The hidden per-path device of an NVMe disk would count its bytes a second time."""
    files = RecordedHostFiles(
        {f"/sys/block/{name}/device/model": "" for name in ("nvme0n1", "nvme0c0n1")}
        | {"/sys/block/nvme0c0n1/hidden": "1\n", "/sys/block/nvme0n1/hidden": "0\n"}
    )
    assert physical_disks(files, ["nvme0n1", "nvme0c0n1"]) == {"nvme0n1"}


def test_only_the_outer_interface_counts():
    """A container's packet is counted at the card, not again on veth and bridge."""
    assert physical_interfaces(RecordedHostFiles(SYS), parse_net_dev(NET_DEV)) == {"eth0"}


def test_accelerated_interface_counts_once():
    """A virtual function below a paravirtual card is left to its master."""
    files = RecordedHostFiles(
        {f"/sys/class/net/{name}/device/vendor": "" for name in ("eth0", "enP1s1")},
        {"/sys/class/net/enP1s1/master": "../eth0"},
    )
    assert physical_interfaces(files, ["lo", "eth0", "enP1s1"]) == {"eth0"}


def test_bond_is_counted_by_its_cards():
    """A bond's members count, the bond itself does not."""
    files = RecordedHostFiles(
        {f"/sys/class/net/{name}/device/vendor": "" for name in ("eth0", "eth1")}
        | {"/sys/class/net/bond0/type": "1", "/sys/class/net/bonding_masters": "bond0"},
        {"/sys/class/net/eth0/master": "../bond0", "/sys/class/net/eth1/master": "../bond0"},
    )
    assert physical_interfaces(files, ["lo", "eth0", "eth1", "bond0"]) == {"eth0", "eth1"}


def test_namespace_without_hardware_counts_its_own_end():
    """In a network namespace the veth end that leads out counts; bridges, and what is in them, do not."""
    files = RecordedHostFiles(
        {f"/sys/class/net/{name}/type": "1" for name in ("lo", "eth0")}
        | {"/sys/class/net/br0/bridge/stp_state": "0", "/sys/class/net/vlan5/lower_eth0/type": "1"},
        {"/sys/class/net/veth1/master": "../br0"},
    )
    assert physical_interfaces(files, ["lo", "eth0", "br0", "veth1", "vlan5"]) == {"eth0"}


def test_sysfs_of_another_namespace_is_not_believed():
    """Where /sys shows another namespace's interfaces than /proc, names decide, and something always counts."""
    files = RecordedHostFiles({"/sys/class/net/eth0/device/vendor": "", "/sys/class/net/docker0/type": "1"})
    assert physical_interfaces(files, ["lo", "ens3", "br-1234"]) == {"ens3"}
    assert physical_interfaces(files, ["lo", "veth-blade"]) == {"veth-blade"}


def test_iowait_may_run_backwards():
    """A negative delta is kept in the ticks, counts as 0 in the percent, and is told."""
    row = cpu_row(CpuTicks(0, 0, 10, 0, 0), CpuTicks(30, 10, 7, 0, 60))
    assert row["cpu_iowait_ticks"] == -3
    assert row["cpu_iowait_percent"] == 0.0
    assert row["cpu_negative_deltas"] == 1
    assert (row["cpu_user_percent"], row["cpu_system_percent"], row["cpu_idle_percent"]) == (30.0, 10.0, 60.0)


def test_no_tick_no_percent():
    """Within less than a tick the share is unknown, not 0."""
    row = cpu_row(CpuTicks(1, 1, 1, 1, 1), CpuTicks(1, 1, 1, 1, 1))
    assert math.isnan(row["cpu_idle_percent"])
    assert row["cpu_idle_ticks"] == 0


def sampled(first, *later, at=(1_000, 2_500, 3_000)):
    """Return the rows that a sampler gives on a host that is `first` and then each of `later`."""
    texts = dict(first)
    times = iter(at)
    sampler = HostSampler(clock=lambda: next(times), files=RecordedHostFiles(texts))
    rows = []
    for state in later:
        texts.clear()
        texts.update(state)
        rows.append(sampler.sample())
    return sampler, rows


def test_row_holds_what_happened_since_the_last():
    """Counters come as deltas of the devices that count, gauges as they are, and the interval is the real one."""
    after = {
        **HOST,
        **SYS,
        "/proc/stat": STAT.replace("cpu  5017 3", "cpu  5067 3"),
        "/proc/diskstats": DISKSTATS.replace("sda 31876 7343 2786802", "sda 31879 7343 2786810").replace(
            "sda1 31000 7000 2786000", "sda1 31003 7000 2786008"
        ),
        "/proc/net/dev": NET_DEV.replace("189465078", "189465178").replace("docker0:       7", "docker0:     107"),
    }
    sampler, (row,) = sampled({**HOST, **SYS}, after)
    assert sampler.columns == COLUMNS
    assert tuple(row) == COLUMNS
    assert (row["time_ns"], row["interval_ns"]) == (2_500, 1_500)
    assert (row["cpu_user_ticks"], row["cpu_user_percent"]) == (50, 100.0)
    assert (row["disk_read_bytes"], row["disk_read_operations"]) == (8 * 512, 3)
    assert (row["disk_written_bytes"], row["disk_write_operations"]) == (0, 0)
    assert (row["net_received_bytes"], row["net_sent_bytes"]) == (100, 0)
    assert (row["load1"], row["running_processes"]) == (0.31, 4)
    assert row["swap_used_bytes"] == 600 * 1024


def test_plugged_device_gives_no_jump():
    """A disk that appears counts from its second sample on, so its whole past is not one interval's work."""
    before = {**HOST, **SYS, "/proc/diskstats": ""}
    bare = {**before, "/proc/diskstats": "8 16 sdb 0 0 0 0 0 0 0 0 0 0 0"}
    more = {**before, "/proc/diskstats": DISKSTATS}
    busy = {**before, "/proc/diskstats": DISKSTATS.replace("nvme0n1 10 0 80", "nvme0n1 11 0 88")}
    _, rows = sampled(bare, more, busy)
    assert rows[0]["disk_read_bytes"] == 0
    assert rows[1]["disk_read_bytes"] == 8 * 512


def test_counter_that_ran_backwards_is_told():
    """A wrapped or replaced counter is 0 once and counted, never a negative number of bytes."""
    wrapped = {**HOST, **SYS, "/proc/net/dev": NET_DEV.replace("189465078", "12")}
    _, (row,) = sampled({**HOST, **SYS}, wrapped)
    assert row["net_received_bytes"] == 0
    assert row["counter_resets"] == 1


def test_hidden_source_hides_its_columns():
    """What a host does not show is absent from its columns and rows, not zero."""
    poor = {path: text for path, text in HOST.items() if path in ("/proc/stat", "/proc/meminfo")}
    sampler, (row,) = sampled(poor, poor)
    assert tuple(row) == sampler.columns
    assert not [name for name in row if name.startswith(("disk_", "net_", "load"))]
    assert "cpu_user_percent" in row
    assert "memory_used_bytes" in row


@pytest.mark.parametrize("path", sorted(HOST))
def test_source_that_vanishes_is_an_error(path):
    """A file that was there at the start and is gone stops the sampler with its name: no invented zeros."""
    with pytest.raises(InfrastructureError, match=path):
        sampled(HOST, {other: text for other, text in HOST.items() if other != path})


def test_every_column_has_a_unit_that_its_name_shows():
    """Names and units agree."""
    endings = {"_ns": "ns", "_ticks": "USER_HZ", "_percent": "%", "_bytes": "B"}
    for name, unit in UNITS.items():
        assert unit == next((unit for ending, unit in endings.items() if name.endswith(ending)), "1")


def test_this_host_can_be_sampled():
    """On the machine that runs the tests every row is whole and its shares add up, where a tick passed."""
    row = HostSampler(files=LiveHostFiles()).sample()
    assert row["interval_ns"] > 0
    assert row["memory_used_bytes"] > 0
    shares = [value for name, value in row.items() if name.endswith("_percent")]
    assert math.isnan(shares[0]) or sum(shares) == pytest.approx(100.0)
