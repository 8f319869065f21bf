"""The key ``objects``: what a scenario says becomes the job, and what cannot work is refused where it stands."""

import json

import pytest

from bench_common.errors import ScenarioError
from bench_common.thresholds import JOBS_PER_S
from bench_features.objects.common.job import Objects, SizeClass, Sizes
from bench_master.scenario.load import parse_scenario
from bench_master.scenario.yaml_tree import Source

TINY = {"sizes": "4KiB", "mix": {"create": 1, "read": 9}}


def parse(document):
    return parse_scenario(Source("s.yaml", json.dumps(document)))


def load(objects, **keys):
    return parse({"name": "s", "engines": ["noop"], "job": {"objects": objects}, "operation_count": 100, **keys})


def complaints(objects, **keys):
    with pytest.raises(ScenarioError) as caught:
        load(objects, **keys)
    return [problem.message for problem in caught.value.problems]


def test_every_key_reaches_the_job():
    """With units in base units, a duration in whole seconds, and the classes in their order."""
    (treatment,) = load(
        {
            "mix": {"read": 8, "head": 1, "list": 1},
            "population": 7,
            "classes": {
                "tiny": {"sizes": "4KiB", "weight": 3, "population": 100},
                "small": {"sizes": {"min": "8KiB", "max": "64KiB", "distribution": "log"}},
                "mixed": {"sizes": {"histogram": {"1MiB": 1, "4KiB": 3}}, "mix": {"delete": 0, "create": 2}},
            },
            "store": {
                "profile": "lab",
                "endpoints": ["http://a:1/v1/AUTH_x/", "http://b:1"],
                "endpoint_by": "slot",
                "connections": "new",
            },
            "containers": {"count": 4, "base": "mine", "policy": "gold"},
            "delete_after": "1500ms",
            "multipart": {"above": "16MiB", "part": "8MiB"},
            "range": "1KiB",
            "list_limit": 50,
            "block": "1MiB",
            "verify": "full",
            "retries": 3,
            "retry_pause": "20ms",
            "pick": "zipf",
            "zipf_exponent": 0.9,
        },
        concurrency=5,
    ).treatments
    mix = (("read", 8.0), ("head", 1.0), ("list", 1.0))
    assert treatment.concurrency == 5
    assert treatment.job == Objects(
        classes=(
            SizeClass("tiny", Sizes("fixed", 4096, 4096), mix, 3.0, 100),
            SizeClass("small", Sizes("log", 8192, 65536), mix, 1.0, 7),
            SizeClass(
                "mixed", Sizes("histogram", 4096, 1 << 20, ((4096, 3.0), (1 << 20, 1.0))), (("create", 2.0),), 1.0, 7
            ),
        ),
        container_base="mine",
        containers=4,
        profile="lab",
        endpoints=("http://a:1/v1/AUTH_x", "http://b:1"),
        endpoint_choice="slot",
        policy="gold",
        delete_after_s=2,
        block_bytes=1 << 20,
        multipart_above_bytes=16 << 20,
        part_bytes=8 << 20,
        range_bytes=1024,
        list_limit=50,
        verify="full",
        retries=3,
        retry_pause_s=0.02,
        pick="zipf",
        zipf_exponent=0.9,
        connections="new",
    )


def test_a_class_alone_needs_no_name():
    (treatment,) = load(TINY).treatments
    assert isinstance(treatment.job, Objects)
    assert treatment.job.operation_names() == ("create[all]", "read[all]", "read[all].first")


def test_the_matrix_varies_any_key_and_labels_it():
    """The labels are as short as is clear, with sizes and mixes as an author writes them."""
    scenario = load(
        {"mix": {"create": 1}, "classes": {"tiny": {"sizes": "4KiB"}}},
        matrix={
            "objects.classes.tiny.sizes": ["4KiB", {"min": 1, "max": "1MiB", "distribution": "log"}],
            "objects.mix": [{"create": 1}, {"create": 1, "read": 9}],
            "objects.containers.count": [1, 8],
            "concurrency": [1, 64],
        },
    )
    assert len(scenario.treatments) == 16
    assert scenario.treatments[-1].labels == {
        "engine": "noop",
        "tiny.sizes": "1B-1MiB log",
        "mix": "create=1,read=9",
        "containers.count": 8,
        "concurrency": 64,
    }


def test_jobs_are_compared_by_their_throughput_or_in_an_open_system_by_their_response_time():
    assert load(TINY).primary == (JOBS_PER_S,)
    assert load(TINY, rate="50/s").primary == ("response.p95",)
    assert load(TINY, primary="read[all].p99").primary == ("read[all].p99",)


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        ({"sizes": 1}, "'mix' is missing in 'objects'"),
        ({"mix": {"create": 1}}, "'sizes' is missing in 'objects'"),
        ({**TINY, "mixx": {}}, "unknown key 'mixx' in the objects (did you mean 'mix'?)"),
        ({**TINY, "mix": {"raed": 1}}, "unknown operation 'raed' in the mix (did you mean 'read'?)"),
        ({**TINY, "mix": {"create": 0}}, "at least one weight is above 0"),
        ({**TINY, "mix": {"delete": 1, "list": 1}}, "'delete' has no object to delete"),
        ({**TINY, "mix": {"read": 1}}, "'read' has no object to read: add 'create' to the mix, or a 'population'"),
        ({**TINY, "mix": {"delete": 1}, "population": 99}, "uses up the population of 99: a trial has 100 jobs"),
        ({**TINY, "sizes": {"min": 9, "max": 5}}, "'min' 9B is larger than 'max' 5B"),
        ({**TINY, "sizes": {"min": 0, "max": 5, "distribution": "log"}}, "has no size 0"),
        ({**TINY, "sizes": {"histogram": {"1KiB": 0}}}, "at least one weight of a histogram is above 0"),
        (
            {**TINY, "population": 1, "share": "population"},
            "and the mix has 'create'",
        ),
        ({**TINY, "mix": {"list": 1}, "share": "population"}, "'share: population' needs a 'population'"),
        ({**TINY, "mix": {"create": 1}, "verify": "full"}, "'verify' is about reads, and the mix has no 'read'"),
        ({**TINY, "range": "5KiB"}, "'range' 5KiB is larger than the smallest object that is read, 4KiB"),
        ({**TINY, "zipf_exponent": 2, "pick": "random"}, "'zipf_exponent' needs 'pick: zipf'"),
        ({**TINY, "store": {"endpoint_by": "slot"}}, "'endpoint_by' needs several 'endpoints'"),
        ({**TINY, "store": {"endpoints": ["http://u:p@h/"]}}, "expected a URL such as http://10.0.0.1:8080/v1/"),
        ({**TINY, "mix": {"list": 1}, "delete_after": "1h"}, "'delete_after' needs objects that the run makes"),
        ({**TINY, "policy": "gold"}, "unknown key 'policy' in the objects: it belongs under 'containers:'"),
    ],
)
def test_what_cannot_work_is_refused(objects, message):
    """With one complaint, and its place."""
    (found,) = complaints(objects)
    assert message in found


def test_a_store_runs_no_containers_and_an_engine_holds_no_objects():
    (found,) = complaints(TINY, engines=["docker"])
    assert found.startswith("engine docker is no object store: the stores are ")
    with pytest.raises(ScenarioError, match="engine noop is an object store and runs no containers"):
        parse_scenario(
            Source("s.yaml", json.dumps({"name": "s", "engines": ["noop"], "job": {"operations": ["run"]}}))
        )
    document = {"name": "s", "job": {"objects": TINY, "container": {"image": "x"}}}
    with pytest.raises(ScenarioError) as caught:
        parse(document)
    messages = sorted(problem.message for problem in caught.value.problems)
    assert messages[0].startswith("'container' has no meaning for a job on objects")
    assert messages[1].startswith("'engines' is missing")


def test_a_key_of_objects_varies_only_for_jobs_on_objects_and_a_class_that_is_there():
    (found,) = complaints(
        {"mix": {"create": 1}, "classes": {"tiny": {"sizes": 1}}}, matrix={"objects.classes.tinny.sizes": [1]}
    )
    assert found == "'objects.classes.tinny.sizes': no class 'tinny' (did you mean 'tiny'?)"
    with pytest.raises(ScenarioError, match=r"'objects\.sizes' varies here, but this job has no 'objects'"):
        parse({"name": "s", "job": {"operations": [{"sleep": "1s"}]}, "matrix": {"objects.sizes": [1]}})


def test_names_that_s3_does_not_take_are_told():
    """As a note beside the plan: the buckets are called otherwise; Swift takes the names as they are."""
    base = {**TINY, "containers": {"base": "My_own"}}
    note, *_ = load(base, engines=["swift", "s3"]).notes
    assert "the containers My_own_000000 ... are buckets my-own-000000 ..." in note
    assert load(base, engines=["swift"]).notes == ()
    assert load({**TINY, "containers": {"base": "own"}}, engines=["s3"]).notes == ()


def test_a_list_asks_for_no_more_than_a_page():
    """Which is shorter under S3; a matrix may leave out what only Swift has."""
    listing = {**TINY, "mix": {"create": 1, "list": 1}}
    (found,) = complaints({**listing, "list_limit": 1001}, engines=["swift", "s3"])
    assert found == "'list_limit' 1001 is larger than a page of S3: expected 1 to 1000 with s3"
    (treatment,) = load({**listing, "list_limit": 10_000}, engines=["swift"]).treatments
    assert treatment.job.list_limit == 10_000
    varied = {"objects.list_limit": [1000, 5000], "exclude": [{"engine": "s3", "objects.list_limit": 5000}]}
    assert len(load(listing, engines=["swift", "s3"], matrix=varied).treatments) == 3


def test_an_endpoint_with_a_password_is_refused_without_it():
    """Neither the value nor the argument that it came in is repeated as it is."""
    (message,) = complaints({**TINY, "store": {"endpoints": ["http://me:hunter2@host/v1"]}})
    with pytest.raises(ScenarioError) as caught:
        load({**TINY, "store": {"endpoints": ["http://me:hunter2@host/v1"]}})
    assert "expected a URL such as" in message
    assert "hunter2" not in str(caught.value)


def test_a_threshold_on_objects_fits_what_the_jobs_do():
    good = ["operations.read[all].first.p99 < 5ms", "operations.create[all].mb_per_s > 1", "objects.redrawn == 0"]
    assert load(TINY, thresholds=good).thresholds == tuple(good)
    (found,) = complaints(TINY, thresholds=["operations.read[al].p99 < 5ms"])
    assert "no treatment has operation 'read[al]' (did you mean 'read[all]'?)" in found
    (found,) = complaints(TINY, thresholds=["operations.update[all].per_s > 5"])
    assert "no treatment has operation 'update[all]'" in found
    with pytest.raises(ScenarioError, match="no treatment has jobs on objects"):
        parse({"name": "s", "job": {"operations": [{"sleep": "1s"}]}, "thresholds": ["mb_per_s > 5"]})


def test_no_two_treatments_use_the_containers_of_one_base():
    """Their trials take turns, so each would delete what the other reads; elsewhere is no conflict."""
    base = {**TINY, "containers": {"base": "own"}}
    scenario = load(base, matrix={"concurrency": [1, 2, 4]})
    assert [one.job.container_base for one in scenario.treatments] == ["own", "own-2", "own-3"]
    assert [note for note in scenario.notes if "the others have own-2, own-3" in note]
    scenario = load(base, engines=["swift", "s3"])
    assert [one.job.container_base for one in scenario.treatments] == ["own", "own"]
    assert not [note for note in scenario.notes if "each other's" in note]
    scenario = load(base, matrix={"objects.store.profile": ["here", "there"]})
    assert [one.job.container_base for one in scenario.treatments] == ["own", "own"]
    scenario = load(TINY, matrix={"concurrency": [1, 2]})
    assert [one.job.container_base for one in scenario.treatments] == ["", ""]
