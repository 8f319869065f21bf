"""The fingerprint on recorded hosts: hypervisors, containers, cgroups, CPU, disk; and that unknown stays unknown."""

import gzip
import json

import pytest
from recorded_host import RecordedHostFiles

from bench_worker.cli import run_command_line
from bench_worker.host.facts import (
    cgroup_layout,
    container,
    find_mount,
    governor,
    hypervisor,
    machine_id,
    mitigations,
    turbo,
)
from bench_worker.host.fingerprint import FACTS, fingerprint, guess_environment
from bench_worker.host.procfs import LiveHostFiles

METAL = "processor : 0\nmodel name\t: Some CPU\nflags\t\t: fpu vme\n"
GUEST = "processor : 0\nmodel name\t: Some CPU\nflags\t\t: fpu vme hypervisor\n"
ARM = "processor : 0\nFeatures : fp asimd\n"
CLOCKS = "/sys/devices/system/clocksource/clocksource0/available_clocksource"
CPU = "/sys/devices/system/cpu"


def dmi(**texts):
    return {f"/sys/class/dmi/id/{name}": text for name, text in texts.items()}


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        pytest.param({"/proc/cpuinfo": METAL}, "none", id="bare-metal"),
        pytest.param({"/proc/cpuinfo": METAL, **dmi(sys_vendor="Amazon EC2")}, "none", id="rented-bare-metal"),
        pytest.param({"/proc/cpuinfo": METAL, **dmi(sys_vendor="Microsoft Corporation")}, "none", id="laptop"),
        pytest.param({"/proc/cpuinfo": GUEST, **dmi(sys_vendor="QEMU"), CLOCKS: "kvm-clock tsc"}, "kvm", id="kvm"),
        pytest.param({"/proc/cpuinfo": GUEST, **dmi(sys_vendor="QEMU"), CLOCKS: "tsc hpet"}, "qemu", id="emulated"),
        pytest.param({"/proc/cpuinfo": GUEST, CLOCKS: "tsc kvm-clock"}, "kvm", id="no-firmware-tables"),
        pytest.param({"/proc/cpuinfo": GUEST, **dmi(product_name="VMware7,1")}, "vmware", id="vmware"),
        pytest.param(
            {
                "/proc/cpuinfo": GUEST,
                **dmi(product_name="Virtual Machine", sys_vendor="Microsoft Corporation"),
            },
            "hyper-v",
            id="hyper-v",
        ),
        pytest.param({"/proc/cpuinfo": GUEST, CLOCKS: "hyperv_clocksource_tsc_page"}, "hyper-v", id="hyper-v-clock"),
        pytest.param({"/proc/cpuinfo": GUEST, **dmi(product_name="VirtualBox")}, "virtualbox", id="virtualbox"),
        pytest.param({"/proc/cpuinfo": GUEST, "/sys/hypervisor/type": "xen"}, "xen", id="xen"),
        pytest.param(
            {"/proc/cpuinfo": GUEST, "/sys/hypervisor/type": "xen", "/proc/xen/capabilities": "control_d"},
            "none",
            id="xen-control-domain",
        ),
        pytest.param({"/proc/cpuinfo": GUEST}, "unidentified", id="hides-its-name"),
        pytest.param({"/proc/cpuinfo": ARM, **dmi(sys_vendor="QEMU")}, "qemu", id="arm-guest"),
        pytest.param(
            {"/proc/cpuinfo": ARM, "/proc/device-tree/hypervisor/compatible": "linux,kvm\0"}, "kvm", id="device-tree"
        ),
        pytest.param({"/proc/cpuinfo": ARM}, None, id="arm-without-a-word"),
        pytest.param({}, None, id="nothing-readable"),
    ],
)
def test_hypervisor_is_told_from_files(texts, expected):
    """Each kind of host is recognised from what its files say, without root; what cannot be told is unknown."""
    assert hypervisor(RecordedHostFiles(texts)) == expected


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ({"/proc/cpuinfo": METAL}, "bare-metal"),
        ({"/proc/cpuinfo": GUEST}, "hypervisor"),
        ({"/proc/cpuinfo": ARM}, "bare-metal"),
    ],
)
def test_environment_is_suggested_as_documented(texts, expected):
    """A hypervisor that shows suggests `hypervisor`; everything else `bare-metal`."""
    assert guess_environment(RecordedHostFiles(texts)) == expected


OVERLAY_ROOT = "700 600 0:50 / / rw,relatime - overlay overlay rw,lowerdir=/x\n"
DISK_ROOT = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard\n"
VFS_ROOT = "27 1 254:0 /var/lib/docker/vfs/dir/ab / rw,relatime - ext4 /dev/vda rw\n"


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        pytest.param({"/.dockerenv": "", "/proc/self/mountinfo": OVERLAY_ROOT}, "docker", id="docker"),
        pytest.param({"/.dockerenv": "", "/proc/self/mountinfo": VFS_ROOT}, "docker", id="docker-on-vfs"),
        pytest.param({"/run/.containerenv": "", "/proc/self/mountinfo": OVERLAY_ROOT}, "podman", id="podman"),
        pytest.param({"/.dockerenv": "", "/proc/self/mountinfo": DISK_ROOT}, "none", id="vm-made-from-an-image"),
        pytest.param({"/run/systemd/container": "lxc\n", "/proc/self/mountinfo": DISK_ROOT}, "lxc", id="told"),
        pytest.param({"/proc/self/mountinfo": DISK_ROOT}, "none", id="host"),
        pytest.param({}, None, id="nothing-readable"),
    ],
)
def test_container_is_told_from_files(texts, expected):
    """A container is recognised; a marker left on a virtual machine's disk is not taken for one."""
    assert container(RecordedHostFiles(texts)) == expected


@pytest.mark.parametrize(
    ("mounts", "expected"),
    [
        ("31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "v2"),
        ("31 23 0:28 / /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu\n", "v1"),
        (
            (
                "31 23 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
                "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
            ),
            "hybrid",
        ),
        (DISK_ROOT, None),
    ],
)
def test_cgroup_layout_is_told_from_mounts(mounts, expected):
    """v1, v2 and the hybrid of both are told apart."""
    assert cgroup_layout(RecordedHostFiles({"/proc/self/mountinfo": mounts})) == expected


def test_governors_of_all_cpus_are_told():
    """CPUs that differ in governor show so; without frequency scaling there is none."""
    texts = {f"{CPU}/cpu{n}/cpufreq/scaling_governor": text for n, text in enumerate(["powersave", "performance"])}
    assert governor(RecordedHostFiles(texts)) == "performance,powersave"
    assert governor(RecordedHostFiles({f"{CPU}/cpu0/topology/core_id": "0", f"{CPU}/cpufreq/x": "y"})) is None


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ({f"{CPU}/intel_pstate/no_turbo": "1"}, "off"),
        ({f"{CPU}/intel_pstate/no_turbo": "0"}, "on"),
        ({f"{CPU}/cpufreq/boost": "1"}, "on"),
        ({f"{CPU}/cpufreq/boost": "0"}, "off"),
        ({}, None),
    ],
)
def test_turbo_is_read_from_either_driver(texts, expected):
    """Intel's and the generic switch mean opposite things and are both understood."""
    assert turbo(RecordedHostFiles(texts)) == expected


def test_mitigations_keep_what_applies():
    """Vulnerabilities that do not apply are left out; the rest is in the kernel's words."""
    path = f"{CPU}/vulnerabilities"
    texts = {f"{path}/mds": "Not affected", f"{path}/spectre_v2": "Mitigation: IBRS", f"{path}/l1tf": "Vulnerable"}
    assert mitigations(RecordedHostFiles(texts)) == "l1tf: Vulnerable | spectre_v2: Mitigation: IBRS"
    assert mitigations(RecordedHostFiles({f"{path}/mds": "Not affected"})) == "not affected"
    assert mitigations(RecordedHostFiles()) is None


def test_mount_is_the_innermost_and_the_latest():
    """The mount with the longest directory holds a path; of two on one directory the later; names are unescaped."""
    mounts = (
        "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "2 1 8:2 / /data rw - xfs /dev/sda2 rw\n"
        "3 1 8:3 / /data rw,noatime - btrfs /dev/sda3 rw\n"
        "4 1 8:4 / /my\\040disk rw - ext4 /dev/sda4 rw\n"
    )
    files = RecordedHostFiles({"/proc/self/mountinfo": mounts})
    assert find_mount(files, "/data/x").kind == "btrfs"
    assert find_mount(files, "/database").device == "8:1"
    assert find_mount(files, "/my disk").device == "8:4"
    assert find_mount(RecordedHostFiles(), "/") is None


def test_disk_of_the_working_directory_is_the_whole_disk():
    """The scheduler is that of the disk that holds the partition that holds the working directory."""
    files = RecordedHostFiles(
        {
            "/proc/self/mountinfo": "1 0 8:2 / / rw - ext4 /dev/sda2 rw\n",
            "/sys/block/sda/queue/scheduler": "none [mq-deadline] kyber",
            "/sys/block/sda/queue/rotational": "0",
        },
        {
            "/proc/self/cwd": "/srv",
            "/sys/dev/block/8:2": "../../devices/pci0/host0/block/sda/sda2",
        },
    )
    facts = fingerprint(files)
    assert (facts["disk"], facts["disk_scheduler"], facts["disk_rotational"]) == ("sda", "mq-deadline", "no")


def test_topology_counts_cores_and_threads():
    """Two threads on one core of one socket are one core and two threads."""
    texts = {"/proc/stat": "cpu 1 1 1 1\ncpu0 1 1 1 1\ncpu1 0 0 0 0\n"}
    for number in (0, 1):
        texts[f"{CPU}/cpu{number}/topology/core_id"] = "0"
        texts[f"{CPU}/cpu{number}/topology/physical_package_id"] = "0"
    facts = fingerprint(RecordedHostFiles(texts))
    assert (facts["cpu_sockets"], facts["cpu_cores"], facts["cpu_threads"]) == (1, 1, 2)


def test_kernel_options_keep_no_secret():
    """Only options that change measurements are kept of the kernel's command line."""
    files = RecordedHostFiles({"/proc/cmdline": "root=/dev/sda1 token=secret mitigations=off isolcpus=2-3 quiet"})
    assert fingerprint(files)["kernel_options"] == "mitigations=off isolcpus=2-3"


CONFIG = "/boot/config-6.1"
HZ = "CONFIG_HZ_1000=y\nCONFIG_HZ=1000\n"


@pytest.mark.parametrize(
    ("texts", "hz", "nocbs"),
    [
        ({"/proc/config.gz": f"{HZ}CONFIG_RCU_NOCB_CPU=y\n"}, 1000, "none"),
        ({CONFIG: f"{HZ}CONFIG_RCU_NOCB_CPU=y\nCONFIG_RCU_NOCB_CPU_DEFAULT_ALL=y\n"}, 1000, "all"),
        ({CONFIG: f"{HZ}CONFIG_RCU_NOCB_CPU=y\n", "/proc/cmdline": "quiet rcu_nocbs=2-3"}, 1000, "2-3"),
        ({CONFIG: f"{HZ}CONFIG_RCU_NOCB_CPU=y\n", "/proc/cmdline": "rcu_nocbs"}, 1000, "all"),
        ({CONFIG: "# CONFIG_RCU_NOCB_CPU is not set\nCONFIG_HZ=250\n", "/proc/cmdline": "rcu_nocbs=1"}, 250, "none"),
        ({"/proc/cmdline": "rcu_nocbs=1"}, None, "1"),
        ({"/proc/cmdline": "quiet"}, None, None),
    ],
)
def test_the_kernels_build_says_its_tick_and_who_runs_callbacks(texts, hz, nocbs):
    """From the kernel's own configuration or the distribution's copy; a boot option counts if the build has it."""
    facts = fingerprint(RecordedHostFiles({"/proc/sys/kernel/osrelease": "6.1", **texts}))
    assert (facts.get("kernel_hz"), facts.get("rcu_nocbs")) == (hz, nocbs)


def test_rcu_modes_are_read():
    """Both switches of the kernel, since one overrides the other."""
    facts = fingerprint(RecordedHostFiles({"/sys/kernel/rcu_expedited": "1\n", "/sys/kernel/rcu_normal": "0\n"}))
    assert (facts["rcu_expedited"], facts["rcu_normal"]) == (1, 0)


def test_a_packed_file_of_a_host_is_unpacked(tmp_path):
    """As /proc/config.gz is; one that is damaged counts as hidden."""
    path = tmp_path / "config.gz"
    path.write_bytes(gzip.compress(b"CONFIG_HZ=1000\n"))
    assert LiveHostFiles().text(str(path)) == "CONFIG_HZ=1000"
    path.write_bytes(b"CONFIG_HZ=1000\n")
    assert LiveHostFiles().text(str(path)) is None


def test_unknown_is_absent():
    """A host that tells nothing has only the facts of our own software."""
    assert set(fingerprint(RecordedHostFiles())) <= {
        name for name in FACTS if name.startswith(("package_", "python_", "libc", "libzmq", "weighbridge"))
    }


def test_a_fact_that_breaks_is_left_out(caplog):
    """A text that no kernel should write costs its own fact and a line in the log, not the fingerprint."""
    facts = fingerprint(RecordedHostFiles({"/proc/meminfo": "gibberish", "/proc/sys/kernel/osrelease": "6.1"}))
    assert "memory" not in facts
    assert facts["kernel"] == "6.1"
    assert "fact memory" in caplog.text


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("Name:\tpython\nCapEff:\t000001fffeffffff\n", "allowed"),
        ("CapEff:\t00000000a80425fb\n", "refused"),
        ("Name:\tpython\n", None),
    ],
    ids=["root", "in a container", "hidden"],
)
def test_who_may_have_real_time_priority(status, expected):
    """The capability says how exact ends can be stamped under load."""
    assert fingerprint(RecordedHostFiles({"/proc/self/status": status})).get("real_time_priority") == expected


def test_worker_answers_with_its_fingerprint(capsys):
    """`bench-worker --fingerprint` prints one JSON object with this host's facts."""
    assert run_command_line(["--fingerprint"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["environment"] in ("bare-metal", "hypervisor")
    assert set(answer["facts"]) <= set(FACTS)
    assert {"kernel", "hostname", "memory", "cpu_threads", "python_version"} <= set(answer["facts"])


def test_a_machine_is_told_by_a_digest_of_its_id():
    """The id itself is confidential; an empty file, as in a container image, is none."""
    own = machine_id(RecordedHostFiles({"/etc/machine-id": "0123456789abcdef0123456789abcdef\n"}))
    other = machine_id(RecordedHostFiles({"/etc/machine-id": "", **dmi(product_uuid="4C4C4544-0042")}))
    assert (len(own), len(other), own == other) == (16, 16, False)
    assert "0123456789abcdef" not in own
    assert machine_id(RecordedHostFiles({"/etc/machine-id": ""})) is None
    assert FACTS["machine_id"].identity


def test_a_query_without_its_dashes_is_no_name_of_a_worker(capsys):
    """It would wait for a master for ever."""
    assert run_command_line(["fingerprint"]) == 2
    assert "is an option: bench-worker --fingerprint" in capsys.readouterr().err
