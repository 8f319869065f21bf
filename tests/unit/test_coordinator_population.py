"""The coordinator fills the store before the first trial of a treatment, and waits for the clean-up of objects."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from test_coordinator import Run, issued, only, treatment

from bench_common.objects.job import Objects, SizeClass, Sizes
from bench_master.coordinator import messages as act
from bench_master.coordinator import messages as ev
from bench_master.plan import Trial

JOB = Objects((SizeClass("tiny", Sizes("fixed", 10, 10), (("read", 1.0),), population=4),))
FIELDS = {"objects": 2, "found": 0, "content_bytes": 20, "failed": 0, "seconds": 1.5, "reason": ""}


def _run(*, workers: int = 2, **policy: Any) -> Run:
    one = replace(treatment(concurrency=1, iterations=1), job=JOB)
    trials = [Trial(index, 0, index, warmup=False) for index in range(2)]
    run = Run(one, trials=trials, expected=workers, **policy)
    for worker in "abc"[:workers]:
        run.join(worker)
    return run


def _progress(run: Run, number: int, *, over: bool = True, phase: str = "populate") -> list[act.Action]:
    epoch = run.member(number).epoch
    return run.feed(ev.PopulationReport(epoch, 0, phase, over, FIELDS))  # type: ignore[arg-type]


def _defined(actions: list[act.Action]) -> list[tuple[int, int, int]]:
    return [(action.number, action.part, action.parts) for action in only(actions, act.DefineTreatment)]


def test_the_first_trial_waits_until_every_worker_has_filled_its_part() -> None:
    run = _run()
    assert _defined(run.log) == [(0, 0, 2), (1, 1, 2)]
    assert not issued(run.log)
    assert not issued(_progress(run, 0))
    assert not issued(_progress(run, 1, over=False))
    assert issued(_progress(run, 1)) == [0, 1]
    assert run.notes("objects") == [
        {"worker": number, "treatment": 0, "phase": "populate", **FIELDS} for number in (0, 1)
    ]
    run.finish(0, number=0)
    actions = run.finish(1, number=1)
    assert issued(actions) == [2, 3], "the second trial begins at once"
    assert not _defined(actions)


def test_what_goes_on_says_how_far_the_filling_and_the_clearing_of_a_store_are() -> None:
    run = _run()
    assert run.coordinator.activity(run.now) == "filling the store: 0 of 4 objects"
    _progress(run, 0, over=False)
    assert run.coordinator.activity(run.now) == "filling the store: 2 of 4 objects"
    _progress(run, 0)
    _progress(run, 1, over=False)
    assert run.coordinator.activity(run.now) == "filling the store: 4 of 4 objects"
    _progress(run, 1)
    assert run.coordinator.activity(run.now) == ""
    for ticket, number in ((0, 0), (1, 1), (2, 0), (3, 1)):
        run.finish(ticket, number=number)
    _progress(run, 0, over=False, phase="clear")
    assert run.coordinator.activity(run.now).endswith("; 2 objects deleted from stores")


def test_a_worker_that_makes_progress_is_waited_for_and_a_stuck_one_is_not() -> None:
    run = _run(workers=1, population_timeout_s=10.0, heartbeat_timeout_s=1000.0)
    for _ in range(5):
        _progress(run, 0, over=False)
        assert not issued(run.feed(ev.Tick(), after=9.0))
    run.feed(ev.MasterStalled(8.0), after=8.0)
    assert not issued(run.feed(ev.Tick()))
    assert issued(run.feed(ev.Tick(), after=1.1)) == [0]


def test_a_worker_that_does_not_come_back_holds_nothing_up() -> None:
    run = _run(heartbeat_timeout_s=1000.0)
    _progress(run, 0)
    assert not issued(run.feed(ev.WorkerDied("b", "killed"))), "it may come back"
    assert issued(run.feed(ev.Tick(), after=10.1)) == [0]
    assert run.notes("worker-given-up")


def test_a_worker_that_comes_back_in_a_trial_fills_its_part_again() -> None:
    run = _run()
    _progress(run, 0)
    _progress(run, 1)
    run.feed(ev.WorkerDied("b", "killed"))
    back = run.join("b")
    assert _defined(back) == [(1, 1, 2)]
    assert issued(back), "its jobs wait there"


def test_a_worker_that_is_back_before_the_trial_is_asked_again_but_not_for_ever() -> None:
    run = _run(workers=1)
    for _ in range(2):
        run.feed(ev.WorkerDied("a", "killed"))
        run.join("a")
        actions = run.feed(ev.Tick())
        assert _defined(actions) in ([], [(0, 0, 1)])
        assert not issued(run.log)
    run.feed(ev.WorkerDied("a", "killed"))
    actions = [*run.join("a"), *run.feed(ev.Tick())]
    assert _defined(actions) == [(0, 0, 1)]
    assert issued(actions) == [0]


def test_an_interrupt_ends_the_filling() -> None:
    run = _run()
    assert len(only(run.feed(ev.Interrupt()), act.StartCleanup)) == 2


def test_a_clean_up_may_last_as_long_as_objects_are_being_deleted() -> None:
    run = _run(workers=1, cleanup_timeout_s=10.0, heartbeat_timeout_s=1000.0)
    _progress(run, 0)
    run.finish(0)
    assert only(run.finish(1), act.StartCleanup)
    for _ in range(4):
        run.feed(ev.Tick(), after=9.0)
        assert not only(_progress(run, 0, over=False, phase="clear"), act.RunFinished)
    _progress(run, 0, phase="clear")
    assert run.notes("objects")[-1]["phase"] == "clear"
    assert run.swept()[-1].status == "complete"


def test_other_jobs_wait_for_nothing() -> None:
    run = Run(treatment(concurrency=1, iterations=1))
    assert issued(run.join()) == [0]
