"""Cold starts: what is taken away before a job, in which order, and where that is refused."""

from types import SimpleNamespace

import msgspec
import pytest

from bench_common.errors import ScenarioError
from bench_common.job_kind import read_job
from bench_common.requirements import requirements_for_worker
from bench_common.stats.block_types import as_stored
from bench_common.treatment import Treatment
from bench_master.analysis.parameters import parameter_differences, parameters
from bench_master.plan import host_notes
from bench_master.run.preflight import check_compatibility
from bench_master.scenario.load import parse_scenario
from bench_master.scenario.yaml_tree import Source
from bench_worker import operation_runner
from bench_worker.engines.base import Container, OperationResult
from bench_worker.host import page_cache
from bench_worker.host.page_cache import PageCacheError
from bench_worker.operation_runner import OperationRunner

LIFE = "job: {operations: [create, start, remove], container: {image: a, command: [b]}}"


def scenario(rest, job=LIFE):
    return parse_scenario(Source("s.yaml", f"name: a\nengines: [docker]\n{job}\n{rest}\n"))


def test_cold_and_warm_are_treatments():
    """A matrix varies it; it travels, and a run without a label for it does not compare with others."""
    made = scenario("matrix: {cold: [none, page-cache]}").treatments
    assert [one.labels["cold"] for one in made] == ["none", "page-cache"]
    assert [one.cold for one in made] == ["none", "page-cache"]
    assert msgspec.convert(made[1].to_dict(), Treatment, dec_hook=read_job) == made[1]
    warm, cold = (as_stored(scenario(f"cold: {each}").treatments[0]) for each in ("none", "image"))
    assert [(one.name, one.effect) for one in parameter_differences(warm, cold)] == [("cold", "refusal")]
    assert "cold" not in parameters(warm), "an earlier run that does not say so was warm"


@pytest.mark.parametrize(
    ("rest", "job", "problem"),
    [
        ("cold: disk", LIFE, "s.yaml:4:7: unknown cold start 'disk'"),
        ("cold: image\nconcurrency: 2", LIFE, "s.yaml:4:7: 'cold: image' takes away what other jobs use"),
        (
            "cold: page-cache\nrate: 5/s\nrun_seconds: 5s",
            LIFE,
            "s.yaml:4:7: 'cold: page-cache' takes away what other jobs use at the same time: remove 'rate'",
        ),
        (
            "cold: page-cache",
            "job: {operations: [run, {hold: 1s}, remove], container: {image: a}, concurrency: 2}",
            "jobs with 'hold' run beside each other",
        ),
        ("cold: both", "job: {workload: ab, services: {webbench: {}}}", "'cold: both' cannot remove an image"),
    ],
)
def test_what_cannot_work_is_refused(rest, job, problem):
    """With the place of the key and what to do."""
    with pytest.raises(ScenarioError) as refused:
        scenario(rest, job)
    assert problem in str(refused.value)


def test_a_job_has_its_own():
    """It overrides that of the top level."""
    own = "job: {operations: [create, remove], container: {image: a, command: [b]}, cold: none}"
    assert scenario("cold: image", own).treatments[0].cold == "none"


def test_the_notes_say_what_is_dropped_and_set():
    """They are in the plan and in the report, each once."""
    varied = scenario("matrix: {cold: [none, page-cache, both], host.swappiness: [1, 2]}").treatments
    cache = "the host's page cache is dropped (sync, then drop_caches 3)"
    assert host_notes(varied) == [
        f"cold: page-cache: before each job, outside its time, {cache}",
        f"cold: both: before each job, outside its time, the image is removed and fetched again, then {cache}",
        "host setting proc/sys/vm/swappiness is 1 or 2 while trials run, and as before afterwards",
    ]
    assert host_notes(scenario("").treatments) == []


@pytest.mark.parametrize(
    ("info", "cold", "reason"),
    [
        ({}, "page-cache", "`cold: page-cache` is not allowed on its host: start it with --allow-cold"),
        ({}, "image", "`cold: image` is not allowed on its host: start it with --allow-cold"),
        ({"allow_cold": True, "page_cache": "no root"}, "both", "`cold: both`: no root"),
        ({"allow_cold": True, "page_cache": "no root"}, "image", ""),
        ({"allow_cold": True, "page_cache": ""}, "both", ""),
        ({}, "none", ""),
    ],
)
def test_a_worker_must_allow_it_and_be_able_to(info, cold, reason):
    """Its hello says both."""
    status = {
        "name": "docker",
        "usable": True,
        "operations": ["create", "start", "remove", "pull"],
        "settings": ["image", "command"],
    }

    def reasons(status):
        told = {"engines": {"docker": status}, **info}
        treatments = scenario(f"cold: {cold}").treatments
        return check_compatibility(treatments, environment="local", slots=1, info=told, noop=False).reasons

    assert reasons(status) == ((reason,) if reason else ())
    unable = reasons({**status, "operations": ["create", "start", "remove"]})
    assert any("fetches no image" in one for one in unable) is (cold in ("image", "both"))


def test_an_image_that_is_fetched_again_need_not_be_there():
    """As for jobs that pull."""
    wanted = [requirements_for_worker(scenario(f"cold: {cold}").treatments, "local") for cold in ("none", "image")]
    assert [one.settings.image for one in wanted[0]] == ["a"]
    assert wanted[1] == []


class Engine:
    """An engine that notes what it does; it can do what is asked for below."""

    name = "docker"
    inapplicable = frozenset()

    def __init__(self, done):
        self._done = done

    def pull(self, _container, *, fresh, timeout_s):
        assert timeout_s > 0
        return self._note("pull fresh" if fresh else "pull")

    def create(self, _container, *, timeout_s):
        assert timeout_s > 0
        return self._note("create")

    start = remove = create

    def _note(self, what):
        self._done.append(what)
        return OperationResult(1, 2)


def done_by(rest, monkeypatch, job=LIFE, **options):
    done = []
    monkeypatch.setattr(operation_runner, "drop_page_cache", lambda: done.append("drop"))
    treatment = scenario(rest, job).treatments[0]
    runner = OperationRunner(Engine(done), treatment, None, **options)
    container = Container("c", 1, runner.settings)
    for step in runner.steps[:1]:
        step.call(container)
    return done


@pytest.mark.parametrize(
    ("cold", "done"),
    [
        ("none", ["create"]),
        ("page-cache", ["drop", "create"]),
        ("image", ["pull fresh", "create"]),
        ("both", ["pull fresh", "drop", "create"]),
    ],
)
def test_everything_is_cold_before_the_first_operation(cold, done, monkeypatch):
    """The image comes first: fetching it warms the cache. A dry run of the harness drops nothing."""
    assert done_by(f"cold: {cold}", monkeypatch) == done
    assert done_by(f"cold: {cold}", monkeypatch, free=True) == ["create"]


def test_a_job_that_pulls_fetches_the_image_itself(monkeypatch):
    """Its `pull` removes what is there."""
    job = "job: {operations: [pull, create, remove], container: {image: a, command: [b]}}"
    assert done_by("cold: both", monkeypatch, job) == ["drop", "pull fresh"]
    assert done_by("cold: page-cache", monkeypatch, job) == ["drop", "pull"]


def test_a_cache_that_is_not_dropped_is_an_error(monkeypatch, tmp_path):
    """With the file and the kernel's words; a worker that could not says so before."""
    monkeypatch.setattr(page_cache, "DROP_CACHES", str(tmp_path / "none" / "drop_caches"))
    assert "No such file" in page_cache.unusable_reason()
    monkeypatch.setattr(page_cache, "os", SimpleNamespace(**{**vars(page_cache.os), "sync": lambda: None}))
    with pytest.raises(PageCacheError, match=r"the page cache was not dropped: .*drop_caches: No such file"):
        page_cache.drop_page_cache()
    file = tmp_path / "drop_caches"
    file.write_text("")
    monkeypatch.setattr(page_cache, "DROP_CACHES", str(file))
    assert page_cache.unusable_reason() == ""
    page_cache.drop_page_cache()
    assert file.read_text() == "3"
