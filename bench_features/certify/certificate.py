"""A certificate: the runs of equal treatments on one machine, what they say together, and for how long it holds.

It is a JSON file below this user's data directory, one for each machine: homes may be shared. Its id is the digest of
all else in it. It holds as long as the machine's properties in `VOIDING` are what they were, at most `valid_days`.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from bench_common.errors import UsageError
from bench_common.files import read_regular, user_folder, write_whole
from bench_common.host_info import Fact, HostText, ShortText
from bench_master.verdicts.confounds import are_alike, shown
from bench_master.verdicts.decision import Word

DEFAULT_VALID_DAYS: Final = 30
VOIDING: Final = (
    "machine_id",
    "architecture",
    "cpu_model",
    "cpu_cores",
    "cpu_threads",
    "cpus_allowed",
    "cpu_smt",
    "cpu_governor",
    "cpu_turbo",
    "clocksource",
    "memory",
    "kernel",
    "hypervisor",
    "container",
    "weighbridge_version",
)
"""The properties of a machine with which a certificate holds: one that changes voids it."""
_ID_DIGITS: Final = 12

Share = Annotated[float, Meta(ge=0, le=1)]
Count = Annotated[int, Meta(ge=0)]
Machine = Annotated[dict[ShortText, Fact], Meta(max_length=100)]


class RunComparison(Struct, frozen=True):
    """One comparison of a treatment with itself."""

    treatment: HostText
    measure: ShortText
    word: Word
    ratio: float | None
    """The estimate; 1 is the truth."""
    low: float | None
    high: float | None
    """The ends of its interval."""
    carry_over: bool = False


class RunMeasure(Struct, frozen=True):
    """One measure of one treatment in one run. Differences are of logarithms: 0.01 is about 1 %."""

    treatment: HostText
    measure: ShortText
    """Such as ``job.p50`` or ``start.p95``."""
    unit: ShortText
    rounds: Count
    """Rounds with a value on both sides."""
    estimate: float
    """The difference of the two sides, which is 0 in truth."""
    sd: float
    """The standard deviation of the rounds' differences."""
    level: float
    """The logarithm of the median of all trials."""


class RunSeries(Struct, frozen=True):
    """What one run says of its order and its probe, of one treatment and its primary measure."""

    treatment: HostText
    place: float | None
    """By how much the later trial of a round is slower than the earlier one, as a difference of logarithms."""
    carry_over: float | None
    """By how much trials after the one side are slower than those after the other."""
    probe_correlation: float | None
    """Of the rounds' differences with those of the probe, through the origin; None without a probe."""
    probe_rounds: Count
    """How many rounds it is of."""


class CertifiedRun(Struct, frozen=True):
    """One run of equal treatments."""

    run_id: ShortText
    began: ShortText
    """When, ISO 8601."""
    boot_id: ShortText
    took_s: float
    comparisons: tuple[RunComparison, ...]
    measures: tuple[RunMeasure, ...]
    series: tuple[RunSeries, ...]


class FalseWords(Struct, frozen=True):
    """How often equal treatments were called different. Intervals are exact, at 95 % (Clopper and Pearson)."""

    comparisons: Count
    found: Count
    """Comparisons with a word for a difference."""
    low: Share
    high: Share
    """The interval of the share of such comparisons."""
    runs: Count
    runs_found: Count
    """Runs with such a comparison."""
    runs_low: Share
    runs_high: Share
    """The interval of the share of such runs, which is promised to be 0.05 at most."""
    words: dict[ShortText, Count]
    """How many comparisons had each word."""


class CertifiedMeasure(Struct, frozen=True):
    """What all runs say of one measure. Shares: 0.012 is 1.2 %."""

    treatment: HostText
    measure: ShortText
    unit: ShortText
    value: float
    """The median of the runs' medians, in the unit."""
    runs: Count
    floor: float
    """19 of 20 runs found less between equal treatments; the largest of fewer than twenty runs."""
    sd: float
    """Standard deviation of a round's difference, of all runs together."""
    detectable: dict[ShortText, float | None]
    """By the number of rounds: the least difference that a run of so many shows four times in five; None if none."""
    between_runs: float | None
    """Standard deviation of the runs of one occasion; None where no occasion has two."""
    between_days: float | None
    """Standard deviation of the means of occasions; None of a single one."""


class Bounded(Struct, frozen=True):
    """An estimate with its 95 % interval, which fewer than six runs do not have."""

    estimate: float
    low: float | None
    high: float | None


class ProbeFinding(Struct, frozen=True):
    """What the hosts' speed, measured before each trial, explains of the rounds' differences."""

    r2: Share
    """The mean of the runs' squared correlations, through the origin."""
    chance: Share
    """What it is where the probe explains nothing."""
    correlation: Bounded
    explains: bool
    """Whether their interval excludes 0."""


class Certificate(Struct, frozen=True, kw_only=True):
    """What a machine can show."""

    format: Literal["weighbridge-certificate"] = "weighbridge-certificate"
    version: Literal[1] = 1
    id: ShortText = ""
    """The beginning of the SHA-256 of all else."""
    created: ShortText
    """When its last run ended, ISO 8601."""
    valid_days: Annotated[int, Meta(ge=1, le=3650)]
    host: ShortText
    machine: Machine
    """The properties that it holds for."""
    scenario: ShortText
    """The name of the scenario whose treatments ran twice in each round."""
    plan: ShortText
    """The digest of what was run: other runs are not added to these."""
    jobs: HostText
    rounds: Count
    margin: Share
    occasions: Count
    """On how many occasions runs were made: those of a boot or of an hour are one."""
    false_words: FalseWords
    measures: tuple[CertifiedMeasure, ...]
    place: Bounded | None
    """By what share the later of two equal trials is slower."""
    carry_over: Bounded | None
    """By what share trials after the one side are slower than those after the other."""
    probe: ProbeFinding | None
    runs: tuple[CertifiedRun, ...] = field(default=())

    def sealed(self) -> Certificate:
        """Return the certificate with the id of its content."""
        content = msgspec.json.encode(replace(self, id=""), order="deterministic")
        return replace(self, id=hashlib.sha256(content).hexdigest()[:_ID_DIGITS])

    @property
    def valid_until(self) -> datetime:
        """When it expires."""
        return datetime.fromisoformat(self.created) + timedelta(days=self.valid_days)

    def why_void(self, machine: Mapping[str, Fact], now: datetime | None = None) -> list[str]:
        """Return why it does not hold for a machine; empty if it holds. `now` is this instant by default."""
        found = changed_properties(self.machine, machine)
        if (now or datetime.now(UTC)) > self.valid_until:
            found.append(f"it is older than {self.valid_days} days ({self.created[:10]})")
        return found


def changed_properties(before: Mapping[str, Fact], now: Mapping[str, Fact]) -> list[str]:
    """Return the properties of `VOIDING` that differ, each as ``kernel 6.1.0 is now 6.1.2``."""
    return [
        f"{name} {shown(before.get(name))} is now {shown(now.get(name))}"
        for name in VOIDING
        if not are_alike(before.get(name), now.get(name))
    ]


def machine_of(fingerprint: Mapping[str, Fact]) -> dict[str, Fact]:
    """Return the properties of a fingerprint with which a certificate holds."""
    return {name: fingerprint[name] for name in VOIDING if fingerprint.get(name) is not None}


# -- where it is kept -----------------------------------------------------------------------------------------------


def kept_file(host: str, machine: Mapping[str, Fact], environ: Mapping[str, str] = os.environ) -> Path:
    """Return the file of a machine's certificate: in ``$XDG_DATA_HOME``, else in ``~/.local/share``."""
    name = re.sub(r"[^A-Za-z0-9.-]", "_", f"{host}-{machine.get('machine_id') or 'unknown'}")
    return user_folder("DATA", ".local/share", environ) / "certificates" / f"{name}.json"


def load(path: Path) -> Certificate | None:
    """Return the certificate of a file; None if there is no file. Raises `UsageError` for one that is damaged."""
    try:
        found = msgspec.json.decode(read_regular(path), type=Certificate)
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, OSError, ValueError) as error:
        raise UsageError(f"{path}: is no certificate: {error}; delete it, and run bench-master certify") from error
    if found.id != found.sealed().id:
        raise UsageError(f"{path}: was changed: its id {found.id} is not that of its content; delete it")
    return found


def encode(certificate: Certificate) -> bytes:
    """Return a certificate as JSON."""
    return msgspec.json.format(msgspec.json.encode(certificate), indent=1) + b"\n"


def save(certificate: Certificate, path: Path) -> None:
    """Write a certificate: a kill leaves the one before, or this one. Raises `UsageError` where it cannot."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, encode(certificate))
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}; name another file") from error
