"""Reasons: each has a sentence that its data make."""

import json
from collections.abc import Mapping

import pytest

from bench_master.analysis.report_types import as_json
from bench_master.verdicts.reasons import SENTENCES, Code, Reason, because, joined


def test_every_reason_has_its_sentence():
    """The table is complete, and no two reasons read alike."""
    assert list(SENTENCES) == list(Code)
    sentences = [
        Reason(code, {**one.example, **({} if kind is None else {"kind": kind})}).sentence()
        for code, one in SENTENCES.items()
        for kind in (one.text if isinstance(one.text, Mapping) else [None])
    ]
    assert len(set(sentences)) == len(sentences) > len(Code)


@pytest.mark.parametrize("code", Code)
def test_every_reason_is_json(code):
    """With its name and its data, which no number that is not finite is among."""
    found = json.loads(json.dumps(as_json(Reason(code, SENTENCES[code].example)), allow_nan=False))
    assert (found["code"], found["data"].keys()) == (code.value, SENTENCES[code].example.keys())


def test_data_that_a_sentence_does_not_take_are_refused():
    """A reason is whole when it is made, not when somebody reads it."""
    assert because(Code.TOO_FEW_ROUNDS, rounds=1).sentence() == "1 round is too few"
    for data in ({}, {"rounds": 1, "of": 2}):
        with pytest.raises(TypeError, match="too-few-rounds: its data are rounds"):
            because(Code.TOO_FEW_ROUNDS, **data)


def test_titles_of_treatments_have_their_short_names():
    """Where a report has names that are shorter than the titles; nothing else of the sentence changes."""
    reason = because(Code.JOBS_FAILED, treatment="engine=docker", failed=2, of=9, left_out=False)
    text = "docker: 2 of 9 jobs failed; the interval allows for whatever they would have given"
    assert reason.sentence({"engine=docker": "docker", "2": "two"}) == text
    assert joined([reason, because(Code.NOOP)]) == f"engine={text}; a no-op run measures the harness"
    assert joined([]) is None
    alone = because(Code.NO_COUNTERPART, treatments=["engine=docker", "engine=crun"])
    assert alone.sentence({"engine=docker": "docker"}).endswith("so not compared: docker, engine=crun")
