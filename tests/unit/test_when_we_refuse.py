"""Reasons: each has a sentence that its data make, and is on the page "When we refuse", as is each flag."""

import json
from typing import get_args

import pytest
from places import ROOT

from bench_master.analysis.report_types import as_json
from bench_master.analysis.verdict_types import FlagKind
from bench_master.verdicts.reasons import SENTENCES, Code, Reason, because, joined

EXPLANATIONS, _, NAMES = (
    " ".join(part.split())
    for part in (ROOT / "docs" / "when-we-refuse.rst").read_text("utf-8").partition("\nNames in JSON\n")
)


OF_FLAGS = list(Code)[list(Code).index(Code.CARRY_OVER) :]
"""What flags say; each kind of a flag is explained as a whole."""


def test_every_reason_has_its_sentence():
    """The table is complete, and no two reasons read alike."""
    assert list(SENTENCES) == list(Code)
    assert len({Reason(code, one.example).sentence() for code, one in SENTENCES.items()}) == len(Code)


@pytest.mark.parametrize("code", [code for code in Code if code not in OF_FLAGS])
def test_every_reason_is_explained(code):
    """What a report says of a verdict that it does not give can be looked up, word for word."""
    assert Reason(code, SENTENCES[code].example).sentence() in EXPLANATIONS


@pytest.mark.parametrize("code", Code)
def test_every_reason_is_in_the_table_of_names(code):
    """With its data, and the sentence of an example."""
    keys = ", ".join(f"``{key}``" for key in SENTENCES[code].example) or "none"
    assert f"* - ``{code}`` - {keys} - {Reason(code, SENTENCES[code].example).sentence()}" in NAMES


@pytest.mark.parametrize("code", Code)
def test_every_reason_is_json(code):
    """With its name and its data, which no number that is not finite is among."""
    found = json.loads(json.dumps(as_json(Reason(code, SENTENCES[code].example)), allow_nan=False))
    assert (found["code"], found["data"].keys()) == (code.value, SENTENCES[code].example.keys())


@pytest.mark.parametrize("kind", get_args(FlagKind))
def test_every_flag_is_on_the_page(kind):
    """With what it means and what to do."""
    assert f"``{kind}``" in EXPLANATIONS


def test_data_that_a_sentence_does_not_take_are_refused():
    """A reason is whole when it is made, not when somebody reads it."""
    assert because(Code.TOO_FEW_ROUNDS, rounds=1).sentence() == "1 round is too few"
    for data in ({}, {"rounds": 1, "of": 2}):
        with pytest.raises(TypeError, match="too-few-rounds: its data are rounds"):
            because(Code.TOO_FEW_ROUNDS, **data)


def test_titles_of_treatments_have_their_short_names():
    """Where a report has names that are shorter than the titles; nothing else of the sentence changes."""
    reason = because(Code.JOBS_FAILED, treatment="engine=docker", failed=2, of=9, left_out=False)
    text = "docker: 2 of 9 jobs failed; counted as the worst both ways"
    assert reason.sentence({"engine=docker": "docker", "2": "two"}) == text
    assert joined([reason, because(Code.NOOP)]) == f"engine={text}; a no-op run measures the harness"
    assert joined([]) is None
    alone = because(Code.NO_COUNTERPART, treatments=["engine=docker", "engine=crun"])
    assert alone.sentence({"engine=docker": "docker"}).endswith("so not compared: docker, engine=crun")
