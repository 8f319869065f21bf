"""Orders as rows: each job has a seed of its own, that follows from its id and the run's seed alone."""

import numpy as np

from bench_common.records import ticket_of
from bench_master.run import dispatcher
from bench_master.run.dispatcher import JobBatches


def rows(packed):
    return np.frombuffer(packed, "<i8").reshape(-1, 3).tolist()


def test_orders_do_not_depend_on_how_they_are_handed_out(monkeypatch):
    """In one go, one by one, or over the edge of a block: the same rows."""
    monkeypatch.setattr(dispatcher, "SEED_BLOCK_JOBS", 8)
    together = rows(JobBatches(5).fresh(range(20)))
    book = JobBatches(5)
    assert [row for first in range(20) for row in rows(book.fresh(range(first, first + 1)))] == together
    assert [row[0] for row in together] == list(range(20))
    seeds = [row[1] for row in together]
    assert len(set(seeds)) == 20
    assert all(0 <= seed < 1 << 63 for seed in seeds)


def test_a_job_that_is_retried_keeps_its_seed():
    """Its ticket tells the attempt, its parameters stay."""
    first = rows(JobBatches(5).fresh(range(10)))
    retried = rows(JobBatches(5).retries((ticket_of(7, 1), ticket_of(2, 2)), 0))
    assert retried == [[ticket_of(7, 1), first[7][1], 0], [ticket_of(2, 2), first[2][1], 0]]


def test_another_seed_gives_other_parameters():
    """The run's seed decides."""
    assert rows(JobBatches(1).fresh(range(3))) != rows(JobBatches(2).fresh(range(3)))


def test_a_job_that_arrives_keeps_its_instant_through_every_attempt():
    """It goes out on the worker's clock, is asked for once on ours, and then forgotten."""
    book = JobBatches(5)
    first = rows(book.arriving(range(3), [100, 200, 300], 7))
    assert [row[2] for row in first] == [107, 207, 307]
    retried = rows(book.retries((ticket_of(1, 1),), -50))
    assert retried == [[ticket_of(1, 1), first[1][1], 150]]
    assert book.take_arrival_times([0, ticket_of(1, 1)]) == [100, 200]
    assert book.take_arrival_times([0, 2]) == [0, 300]
