"""The third kind of job: operations on objects, as declared values."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bench_common.errors import ProtocolError
from bench_common.messages import WORK, DefineTreatment, encode
from bench_common.stats.block_types import as_stored
from bench_common.treatment import Treatment
from bench_features.objects.common.job import MAX_OBJECT_BYTES, Objects, SizeClass, Sizes
from bench_master.analysis.parameters import parameter_differences
from bench_workloads.script import job_script

JOB = Objects(
    classes=(
        SizeClass("tiny", Sizes("fixed", 4096, 4096), (("create", 1.0), ("read", 2.0)), population=10),
        SizeClass("small", Sizes("uniform", 1, 65536), (("read", 1.0), ("delete", 1.0)), weight=0.5),
    )
)
TREATMENT = Treatment(0, {"engine": "swift"}, None, "swift", JOB)


def test_a_job_has_an_operation_for_each_alternative_and_for_the_first_byte_of_each_read() -> None:
    assert [one.name for one in job_script(TREATMENT)] == [
        "create[tiny]",
        "read[tiny]",
        "read[small]",
        "delete[small]",
        "read[tiny].first",
        "read[small].first",
    ]


def test_a_treatment_on_objects_reaches_a_worker_as_it_was_sent() -> None:
    sent = DefineTreatment(epoch=1, number=1, treatment=TREATMENT)
    assert WORK.decode(encode(sent)) == sent


def test_a_worker_refuses_a_size_beyond_what_a_store_takes() -> None:
    huge = replace(JOB, multipart_above_bytes=MAX_OBJECT_BYTES + 1)
    with pytest.raises(ProtocolError, match="multipart_above_bytes"):
        WORK.decode(encode(DefineTreatment(epoch=1, number=1, treatment=replace(TREATMENT, job=huge))))


def test_runs_of_other_objects_are_not_compared_but_those_of_other_stores_are() -> None:
    """The difference is named by class and key."""

    def differences(**changes: object) -> list[str]:
        other = replace(TREATMENT, job=replace(JOB, **changes))
        return [one.name for one in parameter_differences(as_stored(TREATMENT), as_stored(other))]

    assert differences(profile="lab", endpoints=("http://other",)) == []
    assert differences(verify="full") == ["objects.verify"]
    larger = replace(JOB.classes[0], sizes=Sizes("fixed", 8192, 8192))
    assert differences(classes=(larger, JOB.classes[1])) == ["objects.tiny.sizes"]
