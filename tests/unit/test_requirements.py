"""What an engine cannot do of a treatment."""

from types import SimpleNamespace

from bench_common.requirements import ignored_settings, requirements_for_worker, unsupported_features
from bench_common.treatment import ContainerSettings, Guest, Lifecycle, Mount, Operation, Treatment
from bench_worker.engines.base import LowLevelEngine
from bench_worker.engines.oci.spec import UnsupportedSetting

STATUS = {
    "name": "native",
    "usable": True,
    "operations": ("create", "start", "stop", "remove"),
    "settings": ("command", "env"),
    "inapplicable": ("image", "network"),
    "details": {"setting.memory_bytes": "a plain process has no limit"},
}


def treatment(*operations, **settings):
    return Treatment(0, {}, None, "native", Lifecycle(operations), ContainerSettings(**settings))


def test_what_an_engine_can_do_is_not_refused():
    """Known operations, known settings and `sleep`, which needs no engine, pass."""
    wanted = treatment(
        Operation("create", "create"), Operation("sleep", "sleep", seconds=1), command=("a",), image="i"
    )
    assert unsupported_features(STATUS, wanted) == []


def test_an_operation_that_an_engine_lacks_is_refused_by_name():
    """The reason names the engine, the operation as the scenario has it, and what there is instead."""
    (reason,) = unsupported_features(STATUS, treatment(Operation("commit", "commit-2")))
    assert "'native'" in reason
    assert "'commit-2'" in reason
    assert "create, hold, remove" in reason


def test_a_setting_that_would_be_ignored_is_refused_with_the_engines_reason():
    """Silence would make the result a lie: engine, setting, value and reason are said."""
    (reason,) = unsupported_features(STATUS, treatment(memory_bytes=1024))
    assert reason == "engine 'native' cannot enforce memory=1KiB: a plain process has no limit"


def test_every_refusal_is_said_at_once():
    """A user mends a scenario once, not once for each problem."""
    wanted = treatment(Operation("pause", "pause"), Operation("exec", "exec"), memory_bytes=1, cpus=2.0)
    assert len(unsupported_features(STATUS, wanted)) == 4


def test_an_unusable_engine_refuses_everything_with_its_reason():
    """The reason and the advice of the probe are the answer."""
    status = {"name": "docker", "usable": False, "reason": "nobody answers", "advice": "start it"}
    assert unsupported_features(status, treatment()) == ["engine 'docker' cannot be used: nobody answers; start it"]


def test_a_grace_period_finer_than_the_engines_step_is_refused():
    """Docker counts whole seconds: half a second would become something else without a word."""
    status = {**STATUS, "details": {"stop.grace_step_s": "1"}}
    assert unsupported_features(status, treatment(Operation("stop", "stop", seconds=2.0))) == []
    (reason,) = unsupported_features(status, treatment(Operation("stop", "stop", seconds=0.5)))
    assert "0.5 s is not possible" in reason
    assert unsupported_features(STATUS, treatment(Operation("stop", "stop", seconds=0.5))) == []


def test_an_interval_of_statistics_that_is_not_the_engines_own_pace_is_refused():
    """Docker streams once a second: any other interval would become that without a word."""
    status = {**STATUS, "operations": ("stats",), "details": {"stats.interval_s": "1"}}
    assert unsupported_features(status, treatment(Operation("stats", "stats", seconds=1.0))) == []
    assert unsupported_features(status, treatment(Operation("stats", "stats"))) == []
    (reason,) = unsupported_features(status, treatment(Operation("stats", "stats", seconds=0.5)))
    assert "every 0.5 s is not possible" in reason


def test_what_has_no_meaning_is_left_out_and_said():
    """An image is no matter to a plain process; that is a note and not a refusal."""
    wanted = treatment(image="i", command=("a",), network="none")
    assert unsupported_features(STATUS, wanted) == []
    mounted = ContainerSettings(storage=(Mount("host", "/t", source="/s"), Mount("tmpfs", "/u")), init=True)
    of_mounts = Treatment(0, {}, None, "native", wanted.job, mounted)
    status = {**STATUS, "inapplicable": ["init", "storage"]}
    assert ignored_settings(status, of_mounts) == [
        "engine 'native' has no init: init=true is left out",
        "engine 'native' has no storage: storage=/t, /u is left out",
    ]
    notes = ignored_settings(STATUS, wanted)
    assert notes == [
        "engine 'native' has no image: image='i' is left out",
        "engine 'native' has no network: network='none' is left out",
    ]


def test_a_guest_job_is_checked_for_its_settings():
    """Settings are refused for guest jobs as for life-cycle jobs."""
    wanted = Treatment(0, {}, None, "native", Guest("w"), ContainerSettings(storage=(Mount("tmpfs", "/t"),)))
    (reason,) = unsupported_features(STATUS, wanted)
    assert "storage=" in reason


def test_an_image_that_jobs_fetch_is_not_asked_for_and_the_rest_is():
    """The job pulls its own image; its network, and the images of its services, have to be there before."""
    job = Lifecycle((Operation("pull", "pull"), Operation("run", "run")))
    asks = Treatment(0, {}, None, "containerd", job, ContainerSettings(image="i", network="none"))
    [need] = requirements_for_worker([asks], "local")
    assert (need.image, need.network) == (None, "none")

    def fetch(_):
        raise AssertionError("there is no image to fetch")

    engine = SimpleNamespace(_fetch_image=fetch, setup_errors=())
    assert LowLevelEngine.missing(engine, need.settings) == []


def test_a_root_file_system_is_looked_at_before_its_job():
    """It is no image, and may be missing as one may be."""

    def fetch(settings):
        raise UnsupportedSetting(f"{settings.rootfs} is not there")

    engine = SimpleNamespace(_fetch_image=fetch, setup_errors=(UnsupportedSetting,))
    assert LowLevelEngine.missing(engine, ContainerSettings(rootfs="/srv")) == ["/srv is not there"]
