"""One job on objects: what it asks of the store, what of the answer counts as a success, what its report says."""

from time import monotonic_ns

import gevent
import pytest
from deadlines import ANSWER_S

from bench_common.records import JobReport, Outcome
from bench_common.treatment import Treatment
from bench_features.objects.common.access import Access
from bench_features.objects.common.job import Objects, SizeClass, Sizes
from bench_features.objects.worker.base import Store, StoreAnswer, StoreOptions
from bench_features.objects.worker.catalogue import Catalogue, StoredObject
from bench_features.objects.worker.names import Names
from bench_features.objects.worker.noop import NoopSlot
from bench_features.objects.worker.performer import ObjectPerformer
from bench_worker.slots import JobAborted

EVERYTHING = tuple((name, 1.0) for name in ("create", "read", "update", "delete", "head", "list"))


class MemorySlot(NoopSlot):
    """Keeps objects in the store's dictionary; `store.fault` may change an answer."""

    def __init__(self, store):
        self.store = store
        self.closed = 0

    def connect(self):
        self.store.connected.append(self.endpoint)
        return super().connect()

    def close(self):
        self.closed += 1

    def answer(self, operation, length=0, kind=None):
        now = monotonic_ns()
        self.store.asked.append((operation, self.endpoint))
        made = StoreAnswer(kind, "no such object" if kind else "", 0, now, now, now + 5, now + 9, length=length)
        made.transaction_id, made.endpoint = f"tx{len(self.store.asked)}", self.endpoint
        self.store.fault(operation, made)
        return made

    def put(self, container, name, body, *, update=False):
        self.store.objects[f"{container}/{name}"] = b"".join(body)
        return self.answer("update" if update else "create", sum(map(len, body)))

    def get(self, container, name, sink=None, *, byte_range=None, restart=None):
        content = self.store.objects.get(f"{container}/{name}")
        if content is None:
            return self.answer("read", kind="http-404")
        if byte_range is not None:
            content = content[byte_range[0] : byte_range[1] + 1]
        if sink is not None:
            sink(memoryview(self.store.spoil(content)))
        return self.answer("read", len(content))

    def head(self, container, name):
        return self.answer("head", len(self.store.objects[f"{container}/{name}"]))

    def list_objects(self, container, *, prefix="", marker="", limit=1000):
        self.store.limits.append(limit)
        return super().list_objects(container, prefix=prefix, marker=marker, limit=limit)

    def delete(self, container, name, *, in_parts=False):
        del self.store.objects[f"{container}/{name}"]
        self.store.in_parts = in_parts
        return self.answer("delete")


class MemoryStore(Store):
    name = "memory"

    def __init__(self, endpoints=("http://a",)):
        super().__init__(Access(self.name, endpoints=endpoints), StoreOptions())
        self.objects, self.asked, self.slots, self.limits, self.connected = {}, [], [], [], []
        self.fault = lambda _operation, _answer: None
        self.spoil = lambda content: content

    def open(self):
        """Nothing to open."""

    def close(self):
        """Nothing to close."""

    def slot(self, number):
        self.slots.append(MemorySlot(self))
        return self.slots[-1]

    @property
    def endpoints(self):
        return self.access.endpoints


def performer(store=None, mix=EVERYTHING, slots=1, **changes):
    job = Objects(classes=(SizeClass("tiny", Sizes("uniform", 2000, 3000), mix),), **{"verify": "full", **changes})
    treatment = Treatment(0, {}, None, "memory", job)
    catalogue = Catalogue(job, Names.of(job, "0b1ec7000001", 0, 1))
    made = ObjectPerformer(
        treatment, store or MemoryStore(), catalogue, slots=slots, interruptibly=lambda call: call()
    )
    made.names = job.operation_names()
    return made


def seeds(count):
    return [(place * 0x9E3779B97F4A7C15) >> 1 & (1 << 63) - 1 for place in range(1, count + 1)]


def test_each_job_does_one_operation_and_none_fails_by_its_own_doing():
    """Of every kind, with the position of what it did; jobs that found no object did another operation."""
    store = MemoryStore()
    ours = performer(store)
    reports = [ours.run(seed, 0) for seed in seeds(400)]
    assert all(report.outcome == Outcome.DONE for report in reports), [one.error for one in reports if one.error]
    did = [ours.names[report.single_words[0]].partition("[")[0] for report in reports]
    assert set(did) == {"create", "read", "update", "delete", "head", "list"}
    assert [operation for operation, _ in store.asked] == [one for one in did if one != "list"]
    assert did.count("create") - did.count("delete") == len(store.objects)
    assert any(report.single_words[-1] for report in reports)


def test_the_same_seeds_do_the_same():
    first, again = (
        [[report.single_words[0] for report in map(ours.run, seeds(100), [0] * 100)], ours]
        for ours in (performer(), performer())
    )
    assert first[0] == again[0]


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (lambda content: content[:-1], "wrong-length"),
        (lambda content: content[:-1] + bytes([content[-1] ^ 1]), "wrong-content"),
    ],
)
def test_a_success_with_the_wrong_content_is_a_failure(spoil, kind):
    """Its message names the object and what the store called the request."""
    store = MemoryStore()
    ours = performer(store, (("create", 1.0), ("read", 1.0)))
    while not store.objects:
        ours.run(seeds(1)[0] & ~(1 << 62), 0)
    store.spoil = spoil
    failed = [report for report in (ours.run(seed, 0) for seed in seeds(20)) if report.outcome == Outcome.FAILED]
    assert failed
    operation, found, message = failed[0].error
    assert (operation, found) == ("read[tiny]", kind)
    assert message.startswith("weighbridge-0b1ec7000001-0-000000/tiny_")
    assert "(transaction tx" in message


def test_a_read_may_ask_for_a_range_and_only_that_is_compared():
    store = MemoryStore()
    ours = performer(store, (("create", 1.0), ("read", 3.0)), range_bytes=100)
    reports = [ours.run(seed, 0) for seed in seeds(60)]
    assert {report.outcome for report in reports} == {Outcome.DONE}
    assert {report.single_words[4] for report in reports if ours.names[report.single_words[0]] == "read[tiny]"} == {
        100
    }


def test_a_list_asks_for_as_many_names_as_the_scenario_says():
    """Also for more than S3 would give: a store has its own limit."""
    store = MemoryStore()
    ours = performer(store, (("list", 1.0),), list_limit=10_000)
    assert ours.run(1, 0).outcome == Outcome.DONE
    assert store.limits == [10_000]


def test_endpoints_are_used_by_seed_or_by_slot():
    urls = ("http://a", "http://b", "http://c")
    by_seed = MemoryStore(urls)
    ours = performer(by_seed, (("create", 1.0),), slots=2)
    reports = [ours.run(seed, 0) for seed in seeds(300)]
    used = [endpoint for _, endpoint in by_seed.asked]
    assert min(used.count(place) for place in range(3)) > 70
    assert [report.single_words[5] for report in reports] == used
    by_slot = MemoryStore(urls)
    ours = performer(by_slot, (("create", 1.0),), slots=2, endpoint_choice="slot")
    assert [ours.run(seed, 0) for seed in seeds(10)]
    assert [endpoint for _, endpoint in by_slot.asked] == [0, 1] * 5


def test_connections_are_there_before_the_first_job_unless_each_job_makes_its_own():
    """Every user's, to each endpoint that it may use."""
    urls = ("http://a", "http://b")
    for choice, connections, connected in (
        ("seed", "keep", [0, 1] * 3),
        ("slot", "keep", [0, 1, 0]),
        ("seed", "new", []),
    ):
        store = MemoryStore(urls)
        performer(store, slots=3, endpoint_choice=choice, connections=connections)
        assert store.connected == connected


def test_only_requests_that_are_the_slowest_so_far_are_named_and_anew_in_each_trial():
    store = MemoryStore()
    ours = performer(store, (("create", 1.0),))
    took = iter([100, 50, 200, 150, 10, 20])

    def last(_operation, answer):
        answer.last_ns = answer.start_ns + next(took)

    store.fault = last
    named = [ours.run(seed, trial).transactions for seed, trial in zip(seeds(6), (0, 0, 0, 0, 1, 1), strict=True)]
    assert [bool(one) for one in named] == [True, False, True, False, True, True]
    assert named[2] == [("create[tiny]", "tx3")]


def test_what_is_called_off_within_an_operation_is_in_doubt():
    """Its connection is closed, since half of an answer may come yet."""
    store = MemoryStore()
    ours = performer(store, (("create", 1.0), ("update", 1.0)), slots=3)
    assert [ours.run(seed, 0).outcome for seed in seeds(20)] == [Outcome.DONE] * 20
    hanging = gevent.event.Event()

    def hang(operation, _answer):
        if operation == "update":
            hanging.set()
            gevent.sleep(60)

    store.fault = hang
    update = next(seed for seed in seeds(50) if ours._catalogue._chooser.cell(seed).operation == "update")
    job = gevent.spawn(ours.run, update, 0)
    assert hanging.wait(ANSWER_S)
    job.kill(JobAborted)
    assert not isinstance(job.value, JobReport)
    assert sum(slot.closed for slot in store.slots) == 1
    ours._catalogue.validate()
    store.fault = lambda _operation, _answer: None
    assert ours.run(update, 0).outcome == Outcome.DONE


def test_an_object_whose_update_is_in_doubt_is_deleted_as_one_that_may_be_in_parts():
    """It has either size."""
    store = MemoryStore()
    ours = performer(store, (("delete", 1.0),), multipart_above_bytes=10_000)
    for certain in (True, False):
        store.objects["c/tiny_000001"] = b""
        ours._catalogue.add(StoredObject("c", "tiny_000001", 0, 2000, certain=certain))
        assert ours.run(1, 0).outcome == Outcome.DONE
        assert store.in_parts is not certain


def test_a_job_waits_while_others_have_every_object():
    store = MemoryStore()
    ours = performer(store, (("update", 1.0),), slots=3)
    ours._catalogue.add(StoredObject("c", "tiny_000001", 0, 2000))
    under_way = []

    def take_turns(_operation, _answer):
        assert not under_way
        under_way.append(1)
        gevent.sleep(0.005)
        under_way.pop()

    store.fault = take_turns
    jobs = [gevent.spawn(ours.run, seed, 0) for seed in seeds(3)]
    gevent.joinall(jobs, timeout=ANSWER_S)
    assert [job.value.outcome for job in jobs] == [Outcome.DONE] * 3


def test_without_any_object_a_job_fails_as_such():
    ours = performer(mix=(("read", 1.0),))
    report = ours.run(1, 0)
    assert (report.outcome, report.error[:2]) == (Outcome.FAILED, ("worker", "no-object"))
    assert report.single_words[0] == -1
