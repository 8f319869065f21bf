"""The master's part of jobs on objects: what a scenario without such jobs asks of it loads none of its keys.

`keys` has the shapes of the keys, and the job that a cell of the matrix makes of them.
"""

# ruff: noqa: D102  `MasterPart` documents what each method does

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench_common.errors import did_you_mean
from bench_common.units import format_duration
from bench_features.objects.common.store_names import store_names
from bench_master.scenario.master_part import CeilingProbe, MasterPart

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench_common.treatment import Treatment
    from bench_features.objects.common.job import Objects
    from bench_master.scenario.diagnostics import Diagnostics
    from bench_master.scenario.matrix import Settings
    from bench_master.scenario.types import Record
    from bench_master.scenario.yaml_tree import SourceLocation

OBJECTS: Final = "objects"
CLASSES: Final = "objects.classes."


class ObjectKeys(MasterPart):
    """The key ``objects``."""

    name = OBJECTS
    summary = "a job on an object store: the operations on its objects, and how large those are"
    one = "a job on objects"
    many = "jobs on objects"
    does = "works on objects"
    plan_title = "Objects"

    @property
    def time_note(self) -> str:
        from bench_features.objects.common.rules import DEFAULT_OBJECT_S

        return f"an operation on an object counts as {format_duration(DEFAULT_OBJECT_S)}, whatever the store takes"

    def record(self) -> Record:
        from bench_features.objects.master.keys import objects_record

        return objects_record()

    def engines(self) -> tuple[str, ...]:
        return store_names()

    def engines_expected(self) -> str:
        return f"the protocol of its store, one or more of: {', '.join(store_names())}"

    def foreign_engine(self, engine: str) -> str:
        return f"engine {engine} is no object store: the stores are {', '.join(store_names())}"

    def misused_engine(self, engine: str) -> str:
        return f"engine {engine} is an object store and runs no containers: give this job 'objects'"

    def short_key(self, key: str) -> str:
        return super().short_key(key).removeprefix("classes.")

    def check_varied(self, varied: Settings, settings: Settings, findings: Diagnostics) -> bool:
        known = {key.removeprefix(CLASSES).partition(".")[0] for key in settings if key.startswith(CLASSES)}
        for key in varied:
            name = key.removeprefix(CLASSES).partition(".")[0]
            if key.startswith(CLASSES) and name not in known:
                hint = did_you_mean(name, known) or f"; the classes are: {', '.join(known) or 'none'}"
                findings.add(varied[key].place, f"'{key}': no class '{name}'{hint}", deep=True)
                return False
        return True

    def build(self, settings: Settings, engine: str, place: SourceLocation, findings: Diagnostics) -> Objects | None:
        from bench_features.objects.common.access import bucket_name
        from bench_features.objects.master.keys import ObjectsJob

        job = ObjectsJob(settings, engine, place, findings).build()
        base = "" if job is None else job.container_base
        if engine == "s3" and bucket_name(base) != base:
            findings.note(
                f"under s3 the containers {base}_000000 ... are buckets {bucket_name(base)}-000000 ...: "
                "S3 takes neither underscores nor capitals"
            )
        return job

    def settle(self, treatments: Sequence[Treatment]) -> tuple[tuple[Treatment, ...], list[str]]:
        from bench_features.objects.master.keys import separate_bases

        return separate_bases(treatments)

    def plan_lines(self, treatment: Treatment) -> tuple[str, ...]:
        from bench_features.objects.common.rules import objects_job
        from bench_features.objects.master.keys import describe_classes

        return tuple(describe_classes(objects_job(treatment)))

    def ceiling(self, treatment: Treatment) -> CeilingProbe | None:
        if treatment.engine not in ("swift", "s3"):
            return None
        from bench_features.objects.master.stub_store import stub_store

        # The smallest objects, and nothing but reads: no other mix is lighter for the harness.
        job = {"objects": {"population": 64, "sizes": "1KiB", "mix": {"read": 1}}}
        keys = {"engines": [treatment.engine], "job": job}
        return CeilingProbe(f"stub store, {treatment.engine}", keys, stub_store, 100.0, 800, ("ST_", "OS_", "AWS_"))
