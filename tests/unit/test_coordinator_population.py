"""The coordinator fills the store before the first trial of a treatment, and waits for the clean-up of objects."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from test_coordinator import Run, issued, only, treatment

from bench_common.messages import PopulationReport
from bench_features.objects.common.job import Objects, SizeClass, Sizes
from bench_master.coordinator import messages as act
from bench_master.coordinator import messages as ev
from bench_master.plan import Trial

JOB = Objects((SizeClass("tiny", Sizes("fixed", 10, 10), (("read", 1.0),), population=4),))
FIELDS = {"objects": 2, "found": 0, "replaced": 0, "content_bytes": 20, "failed": 0, "seconds": 1.5, "reason": ""}


def _run(*, workers: int = 2, job: Objects = JOB, **policy: Any) -> Run:
    one = replace(treatment(concurrency=1, iterations=1), job=job)
    trials = [Trial(index, 0, index, warmup=False) for index in range(2)]
    run = Run(one, trials=trials, expected=workers, **policy)
    for worker in "abc"[:workers]:
        run.join(worker)
    return run


def _progress(
    run: Run, number: int, *, over: bool = True, phase: str = "populate", **fields: Any
) -> list[act.Action]:
    epoch = run.member(number).epoch
    report: Any = {"phase": phase, "over": over, **FIELDS, **fields}
    return run.feed(PopulationReport(epoch=epoch, treatment=0, **report))


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
        {"worker": number, "treatment": 0, "phase": "populate", **FIELDS, "endpoints": []} for number in (0, 1)
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


def test_a_run_whose_population_was_not_made_ends_before_its_first_trial() -> None:
    """What a worker made is deleted; no job runs on half of the objects."""
    run = _run()
    _progress(run, 0)
    actions = _progress(run, 1, objects=1, failed=1, reason="box/tiny_000002: http-507: full")
    assert len(only(actions, act.StartCleanup)) == 2
    assert not issued(run.log)
    run.swept()
    (end,) = only(run.swept(number=1), act.RunFinished)
    assert end.status == "incomplete"
    assert end.reasons == (
        "index=0: the population of 4 objects was not made: b made 1, and 1 failed: box/tiny_000002: http-507: full",
    )


def test_a_run_may_go_on_with_a_part_of_its_population() -> None:
    run = _run(workers=1, job=replace(JOB, allow_population_failures=True))
    assert issued(_progress(run, 0, objects=1, failed=1)) == [0]


def test_a_population_that_cannot_be_made_again_ends_the_run_when_the_jobs_under_way_have_ended() -> None:
    run = _run()
    _progress(run, 0)
    _progress(run, 1)
    run.feed(ev.WorkerDied("b", "killed"))
    run.join("b")
    assert not only(_progress(run, 1, objects=0, failed=2), act.StartCleanup), "jobs run"
    run.finish(0)
    (retried,) = run.coordinator.scheduler.shares[1].outstanding
    assert only(run.finish(retried, number=1), act.StartCleanup)
    assert run.notes("trial-skipped")


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


def _cleaning(**policy: Any) -> Run:
    """Return a run of one worker that is cleaning up, and was killed after two objects."""
    run = _run(workers=1, heartbeat_timeout_s=1000.0, cleanup_advice="`sweep --run 1`", **policy)
    _progress(run, 0)
    run.finish(0)
    assert only(run.finish(1), act.StartCleanup)
    _progress(run, 0, over=False, phase="clear")
    assert not only(run.feed(ev.WorkerDied("a", "its load process was killed by SIGKILL")), act.RunFinished)
    return run


def test_a_worker_that_comes_back_goes_on_with_its_clean_up() -> None:
    """It opens the store first, without filling it: only who knows what there is can delete it."""
    run = _cleaning()
    back = run.join("a")
    assert _defined(back) == [(0, 1, 1)], "no worker has that part"
    assert not only(back, act.StartCleanup)
    assert only(_progress(run, 0, objects=0), act.StartCleanup)
    _progress(run, 0, phase="clear")
    (end,) = only(run.swept(), act.RunFinished)
    assert (end.status, end.reasons) == ("complete", ())
    run.join("a")
    assert len(only(run.log, act.StartCleanup)) == 2


def test_a_clean_up_that_nobody_finishes_is_told_with_what_removes_the_rest() -> None:
    run = _cleaning()
    (end,) = only(run.feed(ev.Tick(), after=10.1), act.RunFinished)
    assert end.status == "incomplete"
    (reason,) = end.reasons
    assert reason == (
        "clean-up on a was cut off after 2 objects were deleted, and how many are left is not known: its load "
        "process was killed by SIGKILL; what is left is removed by `sweep --run 1`"
    )


def test_objects_that_were_not_deleted_make_a_run_incomplete() -> None:
    run = _run(workers=1, cleanup_advice="`sweep --run 1`")
    _progress(run, 0)
    run.finish(0)
    run.finish(1)
    _progress(run, 0, phase="clear", failed=3, reason="box: http-503")
    (end,) = only(run.swept(), act.RunFinished)
    assert end.status == "incomplete"
    assert end.reasons == (
        "clean-up on a: 3 objects were not deleted: box: http-503; delete them with `sweep --run 1`",
    )


def test_other_jobs_wait_for_nothing() -> None:
    run = Run(treatment(concurrency=1, iterations=1))
    assert issued(run.join()) == [0]
