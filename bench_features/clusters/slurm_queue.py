"""What Slurm knows of jobs and nodes: the output of ``squeue`` and ``sinfo``, read and put into words.

Slurm's own reasons are shown as they are, since its documentation explains them; what a node is busy with or why it
is down is added. ``sacct`` is not asked: it needs a database that many clusters do not have.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct, field

from bench_common.errors import InfrastructureError
from bench_common.safe_text import flat_line, shorten
from bench_features.clusters.cluster import run_tool

QUERY_TIMEOUT_S: Final = 30.0
"""Time limit of a query (s)."""
MAX_REASON: Final = 300
"""How much of a text that somebody gave Slurm is shown (characters)."""

LIST_FORMAT: Final = "%i|%T|%r|%u|%l|%e|%N|%k"
"""Id, state, reason, user, time limit, end, node and comment; only the last may contain a bar."""
_WAITING: Final = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"})
_ACTIVE: Final = _WAITING | {"RUNNING", "SUSPENDED", "COMPLETING", "SIGNALING", "STAGE_OUT", "STOPPED", "RESIZING"}
_GONE_NODE_STATES: Final = ("down", "drain", "fail", "unknown", "power_down", "powered_down", "no_respond")
_HOPELESS_REASONS: Final = frozenset(
    {
        "AccountNotAllowed",
        "BadConstraints",
        "InvalidAccount",
        "InvalidQOS",
        "JobHeldAdmin",
        "JobHeldUser",
        "PartitionDown",
        "PartitionInactive",
        "PartitionNodeLimit",
        "PartitionTimeLimit",
        "QOSNotAllowed",
    }
)
"""Reasons that do not pass by themselves."""
_END_WORDS: Final = {
    "BOOT_FAIL": "its node did not boot",
    "CANCELLED": "somebody cancelled it (scancel)",
    "COMPLETED": "its worker exited",
    "DEADLINE": "its deadline passed",
    "FAILED": "its worker failed",
    "NODE_FAIL": "its node failed or is gone",
    "OUT_OF_MEMORY": "it took more memory than it was given",
    "PREEMPTED": "a job of a higher priority took its node",
    "TIMEOUT": "it reached its time limit",
}


class Job(Struct, frozen=True):
    """A batch job, as ``squeue`` lists it."""

    id: str
    state: str
    """Its state, such as ``PENDING``."""
    reason: str = "None"
    """Why it waits, or why it ended."""
    user: str = ""
    time_limit: str = ""
    """How long it may run."""
    end: str = ""
    """When it ended, or when it will reach its time limit."""
    node: str = ""
    """Where it runs or ran."""
    comment: str = ""
    """The comment that it was submitted with."""

    @property
    def is_waiting(self) -> bool:
        """Whether it has not started yet."""
        return self.state in _WAITING

    @property
    def is_active(self) -> bool:
        """Whether it has not ended yet; a job that is ``COMPLETING`` may still have processes."""
        return self.state in _ACTIVE

    @property
    def is_hopeless(self) -> bool:
        """Whether it waits for something that does not pass by itself."""
        return self.is_waiting and self.reason in _HOPELESS_REASONS

    @property
    def owner(self) -> dict[str, Any]:
        """What its comment says of who started it; empty if that cannot be told."""
        try:
            found = json.loads(self.comment)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


class Node(Struct, frozen=True):
    """A node, as ``sinfo`` lists it, with the jobs on it."""

    name: str
    state: str = "unknown"
    """Its state, such as ``drained``; a ``*`` behind it says that it does not respond."""
    reason: str = ""
    """Why it is not used, and who set that; empty if it is used."""
    jobs: Sequence[Job] = field(default_factory=tuple)
    """The jobs that hold it."""

    @property
    def is_gone(self) -> bool:
        """Whether it takes no job until somebody does something about it."""
        return self.state.startswith(_GONE_NODE_STATES) or self.is_silent

    @property
    def is_silent(self) -> bool:
        """Whether it does not answer Slurm's controller."""
        return self.state.endswith("*")

    def describe(self) -> str:
        """Return its state in words, with the reason or with the jobs that hold it."""
        silent = " and does not respond" if self.is_silent else ""
        reason = f" ({self.reason})" if self.reason else ""
        held = f", with {', '.join(f'job {job.id} of {job.user}' for job in self.jobs[:3])}" if self.jobs else ""
        return flat_line(f"node {self.name} is {self.state.rstrip('*')}{silent}{reason}{held}")


def parse_jobs(text: str) -> list[Job]:
    """Return the jobs of a list in `LIST_FORMAT`."""
    rows = [line.split("|", 7) for line in text.splitlines()]
    return [Job(*(part.strip() for part in row)) for row in rows if len(row) == 8]  # noqa: PLR2004  as in LIST_FORMAT


def parse_node(name: str, text: str, jobs: Sequence[Job] = ()) -> Node:
    """Return a node from the first row of what ``sinfo`` prints; one for each of its partitions."""
    for line in text.splitlines():
        state, user, reason = [*(part.strip() for part in line.split("|", 2)), "", ""][:3]
        if reason in ("", "none"):
            return Node(name, state, "", jobs)
        by = f", set by {user}" if user and user != "Unknown" else ""
        return Node(name, state, f"{shorten(reason, MAX_REASON)}{by}", jobs)
    return Node(name)


def explain_wait(job: Job, node: Node) -> str:
    """Return why a job has not started: Slurm's reason, and what its node is at."""
    reason = "" if job.reason in ("", "None") else f" ({job.reason})"
    return f"job {job.id} is {job.state}{reason}; {node.describe()}"


def explain_end(job: Job) -> str:
    """Return how a job ended."""
    words = _END_WORDS.get(job.state)
    limit = f" of {job.time_limit}" if job.state == "TIMEOUT" else ""
    at = f" at {job.end}" if job.end[:1].isdigit() else ""
    return f"Slurm's job {job.id} ended{at}: {job.state}{f', {words}{limit}' if words else ''}"


def jobs_named(name: str, user: str) -> list[Job]:
    """Return a user's jobs of a name that have not ended."""
    return _squeue(f"--name={name}", f"--user={user}")


def job_numbered(number: str) -> Job | None:
    """Return a job, also one that has ended; None if Slurm has forgotten it."""
    try:
        return next(iter(_squeue(f"--jobs={number}", "--states=all")), None)
    except InfrastructureError as error:
        if "Invalid job id" in str(error):
            return None
        raise


def cancel(numbers: Sequence[str]) -> None:
    """Cancel jobs; one that has ended meanwhile is no error."""
    try:
        run_tool(["scancel", *numbers])
    except InfrastructureError as error:
        if not any(text in str(error) for text in ("already completing", "already completed", "Invalid job id")):
            raise


def look_at_node(name: str, *, beside: str | None = None) -> Node:
    """Return a node with the jobs that hold it, beside one that the caller knows of."""
    text = run_tool(["sinfo", "--noheader", f"--nodes={name}", "--format=%T|%u|%E"], timeout_s=QUERY_TIMEOUT_S)
    holding = _squeue(f"--nodelist={name}", "--states=running,completing,suspended")
    return parse_node(name, text, [job for job in holding if job.id != beside])


def _squeue(*arguments: str) -> list[Job]:
    return parse_jobs(
        run_tool(["squeue", "--noheader", f"--format={LIST_FORMAT}", *arguments], timeout_s=QUERY_TIMEOUT_S)
    )
