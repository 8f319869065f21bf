"""docs/archive.rst names the tables, columns of lists, kinds of faults and classes of facts that there are."""

import ast
import re

from documents import ROOT, rows

from bench_master.archive import verify
from bench_master.archive.facts import IDENTITY, SETTINGS, class_of, fingerprint_hash, split_facts, steadied
from bench_master.archive.schema import METADATA
from bench_worker.host.fingerprint import FACTS

DOCUMENT = ROOT / "docs" / "archive.rst"


def first_column(*heads):
    """Return the first cells of a table of the document."""
    return {row[0] for row in rows(DOCUMENT, *heads)}


def test_every_table_is_explained():
    """And no other."""
    assert first_column("table", "rows") == set(METADATA.tables)


def test_every_kind_of_fault_is_explained():
    """Those that `verify` can yield, as its source has them."""
    tree = ast.parse((ROOT / "bench_master/archive/verify.py").read_text())
    calls = [
        node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Fault"
    ]
    kinds = {call.args[0].value for call in calls}
    assert first_column("kind", "what happened", "what repairs it") == kinds
    assert verify.Fault("index", "x", "y").kind in kinds


def test_classes_are_of_facts_that_there_are():
    """What identifies and sets a machine is in its fingerprint; all else, such as boot ids, is noise."""
    assert FACTS.keys() >= IDENTITY | SETTINGS
    assert {class_of(name) for name in ("boot_id", "hostname", "bogomips", "cpu_microcode", "package_numpy")} == {
        "noise"
    }
    assert (class_of("cpu_model"), class_of("kernel")) == ("identity", "setting")
    assert first_column("class", "facts", "in a series") == {"identity", "setting", "noise"}
    text = DOCUMENT.read_text()
    assert re.search(r"setting +kernel, file system", text)


def test_noise_changes_no_fingerprint():
    """A boot changes noise and a little memory: that is the same machine, and more memory is another one."""
    facts = {"cpu_model": "A", "memory": 25_276_502_016, "kernel": "6.1", "boot_id": "x", "weight": 1.5, "smt": None}
    kept, noise = split_facts(facts)
    assert kept == {"cpu_model": "A", "memory": "25276502016", "kernel": "6.1"}
    assert noise == {"boot_id": "x", "weight": "1.5"}
    again, _ = split_facts(facts | {"boot_id": "y"})
    assert fingerprint_hash(again) == fingerprint_hash(kept)
    other, _ = split_facts(facts | {"memory": 25_300_000_000})
    assert steadied(kept, other) == kept
    more, _ = split_facts(facts | {"memory": 50_000_000_000})
    assert steadied(kept, more)["memory"] == "50000000000"
    assert steadied({}, kept) == kept
