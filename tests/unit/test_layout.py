"""Tables as they are laid out on a page."""

from __future__ import annotations

from bench_master.layout import Column, fit_table


def test_a_table_gives_way_in_order():
    """First the gaps narrow, then spare columns go, and a long name gets a line of its own; nothing else is lost."""
    columns = [Column("name", left=True), Column("a"), Column("b", droppable=True)]
    assert fit_table(columns, [["x", "1", "2"]], indent=0) == ["name  a  b", "x     1  2"]
    assert fit_table(columns, [["x" * 70, "1" * 4, "2" * 4]], indent=0)[0] == "name" + " " * 70 + "a    b"
    wide = fit_table(columns, [["long name " * 3, "1" * 60, "2" * 15]], indent=0)
    assert wide[0].split() == ["name", "a"]
    assert fit_table(columns, [["n" * 90, "1", "2"]], indent=0)[-1].split() == ["1", "2"]
