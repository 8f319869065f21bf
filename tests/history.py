"""The history checker: whatever was done to a run, its stats file must tell one story without a hole in it.

`faults` is a pure function of a header and the blocks that count (`StatsFile.blocks()`). It returns what is wrong, in
words: a job that has no end, or two, or two that contradict each other; counts that do not add up; a job that another
environment ran; an attempt that nothing had called for. An empty list is a story that can be believed.
"""

from collections import Counter

from bench_common.records import OPERATION_DONE, Outcome, attempt_of, job_id_of
from bench_common.stats.reader import StatsFile

MAX_ATTEMPTS = 3


def faults_of(path, *, killed=False):
    """Return the faults of a stats file; a run that was `killed` has no end, and may have jobs without one."""
    file = StatsFile(path)
    found = faults(file.header, file.blocks(), killed=killed)
    if file.damage is not None and not killed:
        found.append(f"the file is damaged: {file.damage}")
    return found


def faults(header, blocks, *, killed=False):
    """Return what is wrong with a history, in the order in which it is found; see the module."""
    history = _History(header)
    for block in blocks:
        getattr(history, f"take_{block.kind}", history.take_nothing)(block.body)
    history.conclude(killed=killed)
    return history.faults


class _History:
    """What is known after some blocks. A job goes by its id, whatever the attempt."""

    def __init__(self, header):
        self.faults = []
        self.treatments = header.treatments
        self.trials = [treatment for treatment, *_ in header.trials]
        self.environments = {}
        self.uncertainties_ns = {}
        self.began = {}
        self.ended = {}
        self.skipped = {}
        self.losses = Counter()
        self.returned = Counter()
        self.resumed = False
        self.rows = {}
        self.in_trial = Counter()
        self.errors = Counter()
        self.reported = {}
        self.measured = {}
        self.footer = None

    def fault(self, text):
        self.faults.append(text)

    def take_nothing(self, body):
        """Pass over what says nothing of jobs."""

    def take_header(self, body):
        """The header was given."""

    def take_host(self, body):
        self.environments[body.worker] = body.environment
        self.uncertainties_ns[body.worker] = body.clock.uncertainty_ns

    def take_event(self, event):
        trial = event.get("trial")
        match event["kind"]:
            case "resumed":
                self.resumed = True
                self.footer = None
            case "worker-lost":
                self.losses[event["worker"]] += 1
            case "packed":
                self.returned[trial] += event["returned"]
            case "trial-begin" | "trial-end" | "trial-skipped" as kind:
                known = {"trial-begin": self.began, "trial-end": self.ended, "trial-skipped": self.skipped}[kind]
                if trial in known:
                    self.fault(f"trial {trial} has two events {kind}")
                known[trial] = event

    def take_jobs(self, rows):
        for row in rows:
            ticket, trial, worker = int(row["ticket"]), int(row["trial"]), int(row["worker"])
            job, attempt, outcome = job_id_of(ticket), attempt_of(ticket), Outcome(int(row["outcome"])).name.lower()
            before = self.rows.get(job)
            if before is not None:
                same = before["outcome"] == outcome
                words = f"counts twice, as {outcome}" if same else f"is {before['outcome']} and {outcome}"
                self.fault(f"job {job} {words}")
                continue
            place = {"ticket": ticket, "trial": trial, "worker": worker, "outcome": outcome}
            self.rows[job] = {**place, "start_ns": int(row["start_ns"]), "end_ns": int(row["end_ns"])}
            self.in_trial[trial] += 1
            if trial >= len(self.trials) or int(row["treatment"]) != self.trials[trial]:
                self.fault(f"job {job} is of trial {trial} and treatment {row['treatment']}: no such pair is planned")
                continue
            if trial in self.ended:
                self.fault(f"job {job} comes after the end of its trial {trial}")
            if attempt >= MAX_ATTEMPTS or attempt > self.losses[worker]:
                self.fault(f"job {job} is attempt {attempt}, with {self.losses[worker]} losses of worker {worker}")

    def take_operations(self, rows):
        for row in rows:
            self._of_job(int(row["ticket"]), self.reported)
            if row["ok"] == OPERATION_DONE:
                self.measured[job_id_of(int(row["ticket"]))] = "an operation"

    def take_metrics(self, records):
        for record in records:
            self._of_job(record.ticket, self.reported)
            self.measured[job_id_of(record.ticket)] = "a metric"

    def take_outputs(self, records):
        for record in records:
            self._of_job(record.ticket, self.reported)

    def take_errors(self, records):
        for record in records:
            self._of_job(record.ticket, self.reported)
            self.errors[job_id_of(record.ticket)] += 1

    def take_footer(self, body):
        self.footer = body

    def _of_job(self, ticket, tickets):
        job = job_id_of(ticket)
        if tickets.setdefault(job, ticket) != ticket:
            self.fault(f"job {job} has records of attempts {attempt_of(tickets[job])} and {attempt_of(ticket)}")

    # -- the end -----------------------------------------------------------------------------------------------

    def conclude(self, *, killed):
        """Look at what only the whole can tell."""
        self._check_rows()
        if not killed:
            if not self.resumed:
                # A job that was handed out has the next id, so a hole is a job that vanished.
                top = max(self.rows, default=-1)
                missing = sorted(set(range(top + 1)) - set(self.rows))
                if missing and not sum(self.returned.values()):
                    self.fault(f"jobs without an outcome: {missing}")
            self._check_trials()
            self._check_counts()

    def _check_rows(self):
        for job, ticket in self.reported.items():
            if job not in self.rows or self.rows[job]["ticket"] != ticket:
                self.fault(f"job {job} has records of attempt {attempt_of(ticket)}, which is in no row")
        for job, row in self.rows.items():
            worker, trial = row["worker"], row["trial"]
            wanted = self.treatments[self.trials[trial]].environment if trial < len(self.trials) else None
            if worker not in self.environments:
                self.fault(f"job {job} was run by worker {worker}, which never joined")
            elif wanted not in (None, self.environments[worker]):
                self.fault(f"job {job} of environment {wanted} was run in {self.environments[worker]}")
            # What was called off was so by us: that needs no reason, though it may have one.
            most, least = (0, 0) if row["outcome"] == "done" else (1, row["outcome"] != "aborted")
            if not least <= self.errors[job] <= most:
                self.fault(f"job {job} is {row['outcome']}, with {self.errors[job]} errors")
            if row["outcome"] != "done" and job in self.measured:
                self.fault(f"job {job} is {row['outcome']}, and {self.measured[job]} of it counts")
            self._check_times(job, row)

    def _check_times(self, job, row):
        if row["end_ns"] < row["start_ns"]:
            self.fault(f"job {job} ended before it began")
        uncertainty_ns = self.uncertainties_ns.get(row["worker"], 0)
        begin, end = self.began.get(row["trial"]), self.ended.get(row["trial"])
        early = begin is not None and row["start_ns"] < begin["at_ns"] - uncertainty_ns
        late = end is not None and row["end_ns"] > end["at_ns"] + uncertainty_ns
        if early or late:
            self.fault(f"job {job} lies {'before' if early else 'behind'} its trial {row['trial']}")

    def _check_trials(self):
        for trial, treatment in enumerate(self.trials):
            if trial in self.began and trial not in self.ended:
                self.fault(f"trial {trial} was begun and has no end")
            end = self.ended.get(trial)
            if end is None:
                if trial not in self.skipped and self.footer is not None and self.footer.status == "complete":
                    self.fault(f"trial {trial} is missing from a run that calls itself complete")
                continue
            expected = _planned(self.treatments[treatment], len(self.began.get(trial, {}).get("workers", ())))
            if expected is None:
                continue
            there = self.in_trial[trial] + end["not_started"] + self.returned[trial]
            if there != expected:
                self.fault(f"trial {trial} has {there} jobs, {expected} were planned")

    def _check_counts(self):
        if self.footer is None:
            self.fault("the run has no end")
            return
        found = Counter(row["outcome"] for row in self.rows.values())
        missing = 0
        for event in (*self.ended.values(), *self.skipped.values()):
            # What was never begun has no row, and is counted with those that share its end.
            found[event["not_started_outcome"]] += event["not_started"]
            missing += event["not_started"]
        if missing != self.footer.not_started:
            self.fault(f"{self.footer.not_started} were not started, the trials say {missing}")
        counts = self.footer.counts
        found["failed"] -= counts.left_out
        for name in ("done", "failed", "lost", "aborted"):
            told = getattr(counts, name)
            if told != found[name]:
                self.fault(f"{told} {name} are told, {found[name]} are there")
        total = sum(found.values()) + counts.left_out
        if counts.planned is not None and total != counts.planned - sum(self.returned.values()):
            self.fault(f"{counts.planned} were planned, {total} are accounted for")
        short = found["lost"] + found["aborted"]
        if short and self.footer.status == "complete":
            self.fault(f"the run calls itself complete, and {short} jobs are missing")


def _planned(treatment, workers):
    """Return how many jobs a trial has; None where that is not known beforehand."""
    if treatment.operation_count is not None:
        return treatment.operation_count
    if treatment.iterations is None:
        return None
    return treatment.iterations * treatment.concurrency * workers
