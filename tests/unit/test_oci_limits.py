"""What confines a container of an OCI runtime: which entry of its config.json each setting becomes."""

import pytest

from bench_common.treatment import ContainerSettings
from bench_worker.engines.base import Container, OperationFailed, host_network_address
from bench_worker.engines.oci import bundle as oci_bundle
from bench_worker.engines.oci.engine import OciBase
from bench_worker.engines.oci.runtimes import RunscEngine
from bench_worker.engines.oci.spec import SETTINGS, apply_limits, device_numbers

NONE = 2**64 - 1


def confined(base=None, **settings):
    """Return a config.json, blank or `base`, in which these settings are entered."""
    config = base or {"process": {"noNewPrivileges": False}, "root": {"readonly": False}, "linux": {}}
    apply_limits(config, ContainerSettings(**settings), {"/dev/a": (8, 0), "/dev/b": (8, 16)}.__getitem__)
    return config


def test_what_is_not_given_is_not_entered():
    """The runtime's own default stays, and so does what a bundle of the user's own says."""
    assert confined() == {
        "process": {"noNewPrivileges": False},
        "root": {"readonly": False},
        "linux": {"resources": {}},
    }
    base = {"process": {}, "root": {"readonly": True}, "linux": {"seccomp": {}, "resources": {"pids": {"limit": 3}}}}
    assert confined(dict(base)) == base


def test_limits_of_processes():
    """Names as the kernel has them, soft and hard, and a way to write that there is none."""
    made = confined(pids=7, ulimits={"nofile": "512:1024", "memlock": "-1", "core": "0"})
    assert made["linux"]["resources"]["pids"] == {"limit": 7}
    assert made["process"]["rlimits"] == [
        {"type": "RLIMIT_NOFILE", "soft": 512, "hard": 1024},
        {"type": "RLIMIT_MEMLOCK", "soft": NONE, "hard": NONE},
        {"type": "RLIMIT_CORE", "soft": 0, "hard": 0},
    ]


def test_a_limit_takes_the_place_of_the_bundles_own():
    """A runtime refuses the same limit twice."""
    own = [{"type": "RLIMIT_NOFILE", "soft": 1, "hard": 2}, {"type": "RLIMIT_CORE", "soft": 3, "hard": 4}]
    made = confined({"process": {"rlimits": own}, "root": {}, "linux": {}}, ulimits={"nofile": "9"})
    assert made["process"]["rlimits"] == [
        {"type": "RLIMIT_NOFILE", "soft": 9, "hard": 9},
        {"type": "RLIMIT_CORE", "soft": 3, "hard": 4},
    ]


def test_limits_of_block_devices():
    """By the numbers of the devices, each kind of rate in its own list, beside the weight."""
    made = confined(blkio_weight=50, device_read_bps={"/dev/a": 1, "/dev/b": 2}, device_write_iops={"/dev/b": 3})
    assert made["linux"]["resources"]["blockIO"] == {
        "weight": 50,
        "throttleReadBpsDevice": [{"major": 8, "minor": 0, "rate": 1}, {"major": 8, "minor": 16, "rate": 2}],
        "throttleWriteIOPSDevice": [{"major": 8, "minor": 16, "rate": 3}],
    }


@pytest.mark.parametrize(("path", "said"), [("/dev/null", "no block device"), ("/dev/nosuch", "No such file")])
def test_a_device_that_is_none_is_refused(path, said):
    """With its path and why."""
    with pytest.raises(ValueError, match=said) as caught:
        device_numbers(path)
    assert path in str(caught.value)


def test_the_root_and_what_processes_may_do():
    """Each security option is an entry, or takes one of the bundle's own away."""
    assert confined(read_only=True)["root"] == {"readonly": True}
    assert confined({"process": {}, "root": {"readonly": True}, "linux": {}}, read_only=False)["root"] == {
        "readonly": False
    }
    assert confined(security_options=("no-new-privileges",))["process"]["noNewPrivileges"] is True
    base = {"process": {"apparmorProfile": "p"}, "root": {}, "linux": {"seccomp": {"defaultAction": "x"}}}
    made = confined(base, security_options=("seccomp=unconfined", "apparmor=unconfined"))
    assert made["process"] == {}
    assert "seccomp" not in made["linux"]


def test_every_engine_of_this_kind_knows_them():
    """gVisor's leaves cgroups alone, so it has none of what they would limit, and says so."""
    assert OciBase.settings >= SETTINGS
    assert RunscEngine.settings & SETTINGS == {"ulimits", "read_only", "security_options", "cap_add", "cap_drop"}
    assert SETTINGS - RunscEngine.settings <= RunscEngine.unsupported_settings.keys()


def test_a_container_in_the_hosts_network_finds_its_own_name(tmp_path):
    """Beside the names that the host knows, unless the scenario brings the file itself."""
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n10.1.2.3 other\n")
    shared = ContainerSettings(network="host", files={"/b": "x"})
    assert oci_bundle.files_with_hosts(shared, "me", hosts) == {
        "/etc/hosts": "127.0.0.1 localhost\n10.1.2.3 other\n127.0.0.1 me\n",
        "/b": "x",
    }
    assert (
        oci_bundle.files_with_hosts(shared, "me", tmp_path / "none")["/etc/hosts"]
        == "127.0.0.1 localhost\n127.0.0.1 me\n"
    )
    own = ContainerSettings(network="host", files={"/etc/hosts": "mine"})
    assert oci_bundle.files_with_hosts(own, "me", hosts) == {"/etc/hosts": "mine"}
    assert oci_bundle.files_with_hosts(ContainerSettings(files={"/b": "x"}), "me", hosts) == {"/b": "x"}


def test_a_container_is_reached_in_the_hosts_network_alone():
    """At the loopback's address; elsewhere nobody here can say."""
    inside = Container("c", 1, ContainerSettings(network="host"))
    assert host_network_address(inside) == "127.0.0.1"
    for network in (None, "none"):
        with pytest.raises(OperationFailed, match="not the host's") as caught:
            host_network_address(Container("c", 1, ContainerSettings(network=network)))
        assert caught.value.kind == "refused"


def test_files_are_mounted_one_by_one(tmp_path):
    """In the order of their paths in the scenario, and readable by everybody in the container."""
    files = {"/etc/a.conf": "one\n", "/b": "zwei ü"}
    oci_bundle.write_files(files, tmp_path)
    mounts = oci_bundle.bind_mounts(files, tmp_path)
    assert [mount["destination"] for mount in mounts] == ["/etc/a.conf", "/b"]
    sources = [tmp_path / "files" / str(ordinal) for ordinal in range(2)]
    assert [mount["source"] for mount in mounts] == [str(path) for path in sources]
    assert [path.read_text("utf-8") for path in sources] == ["one\n", "zwei ü"]
    assert {path.stat().st_mode & 0o777 for path in sources} == {0o644}
    oci_bundle.write_files({}, tmp_path / "nowhere")


def empowered(user=0, **settings):
    """Return the capabilities of a process that has two of its own."""
    own = {kind: ["CAP_CHOWN", "CAP_KILL"] if user == 0 or kind == "bounding" else [] for kind in KINDS}
    base = {"process": {"user": {"uid": user}, "capabilities": own}, "root": {}, "linux": {}}
    return confined(base, **settings)["process"]["capabilities"]


KINDS = ("bounding", "effective", "permitted")


def every(*names):
    """Return these capabilities as those of each kind."""
    return {kind: list(names) for kind in KINDS}


def test_capabilities_are_those_of_the_base_but_for_what_is_said():
    """What is given goes after ``ALL_PACKED`` is taken, and nothing is there twice."""
    assert empowered(cap_drop=("CHOWN",)) == every("CAP_KILL")
    assert empowered(cap_add=("KILL", "SYS_NICE")) == every("CAP_CHOWN", "CAP_KILL", "CAP_SYS_NICE")
    assert empowered(cap_drop=("ALL",), cap_add=("KILL",)) == every("CAP_KILL")
    blank = confined(cap_add=("KILL",))["process"]["capabilities"]
    assert blank == every("CAP_KILL")


def test_who_is_not_root_has_no_capability_at_once():
    """It may get those that are not withheld from the whole container."""
    assert empowered(user=7, cap_add=("SYS_NICE",), cap_drop=("CHOWN",)) == {
        "bounding": ["CAP_KILL", "CAP_SYS_NICE"],
        "effective": [],
        "permitted": [],
    }
