"""The frequency governor as a host setting: a file for each CPU, of a sysfs that stands in for the kernel's."""

import pytest

from bench_common.host_settings import GOVERNOR
from bench_worker.host import settings
from bench_worker.host.settings import SettingClaim, SettingError, current, offered, unusable_reason


@pytest.fixture
def sysfs(tmp_path, monkeypatch):
    """Have no other settings than below a folder, which is returned."""
    root = tmp_path / "sys"
    monkeypatch.setattr(settings, "PATTERNS", {GOVERNOR: f"{root}/cpu[0-9]*/cpufreq/scaling_governor"})
    monkeypatch.setattr(settings, "ROOTS", (f"{root}/",))
    return root


@pytest.fixture
def cpus(sysfs):
    """The folders of two CPUs with a governor, beside one that is off and has none."""
    folders = [sysfs / f"cpu{number}" / "cpufreq" for number in range(2)]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "scaling_governor").write_text("powersave\n")
        (folder / "scaling_available_governors").write_text("performance powersave \n")
    (sysfs / "cpu2").mkdir()
    (sysfs / "cpufreq").mkdir()
    return folders


def governors(cpus):
    return [(folder / "scaling_governor").read_text().strip() for folder in cpus]


def test_a_host_that_manages_no_frequency_says_so(sysfs):
    """As most virtual machines do; it is found before a run."""
    reason = unusable_reason(GOVERNOR)
    assert reason.startswith("host setting governor: this kernel manages no frequency (there is no ")
    with pytest.raises(SettingError, match="manages no frequency"):
        current(GOVERNOR)


def test_the_governors_that_a_host_has_are_offered(cpus):
    assert unusable_reason(GOVERNOR) == ""
    assert offered(GOVERNOR) == ("performance", "powersave")
    (cpus[0] / "scaling_available_governors").unlink()
    assert offered(GOVERNOR) == ()


def test_a_governor_is_set_for_each_cpu_and_each_gets_its_own_back(cpus, tmp_path):
    """Two CPUs may have had different ones."""
    (cpus[1] / "scaling_governor").write_text("performance\n")
    assert current(GOVERNOR) == "powersave,performance"
    records = tmp_path / "records"
    records.mkdir()
    claim = SettingClaim(records, "run-1")
    claim.acquire({GOVERNOR: "schedutil"})
    assert governors(cpus) == ["schedutil", "schedutil"]
    assert current(GOVERNOR) == "schedutil"
    claim.release()
    assert governors(cpus) == ["powersave", "performance"]
    assert list(records.glob("*.setting")) == []
