"""Whether a run measures how late its host wakes threads."""

import pytest


@pytest.mark.parametrize(("flags", "measures"), [((), True), (("--noop",), False)], ids=["native", "no-op"])
def test_late_wake_ups_are_measured_where_an_operation_waits_for_a_thread(workspace, flags, measures):
    """Each batch of results has the number of readings so far; without operations to wait for there is no witness."""
    run = workspace.run(workspace.scenario(iterations=3), *flags)
    batches = [body.columns["wake_ups"] for body in run.blocks("samples") if body.source == "batches"]
    readings = [int(count) for column in batches for count in column]
    assert readings
    assert any(readings) is measures
