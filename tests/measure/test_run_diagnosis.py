"""The probe of the speed of a machine can be turned off."""


def test_the_speed_probe_can_be_turned_off(workspace):
    """A no-op run has none either: it measures the harness."""
    for measured, flags in ((False, ()), (True, ("--noop",))):
        run = workspace.run(workspace.scenario(repeats=2, speed_probe=measured), "--no-report", *flags)
        assert "speed" not in {block.source for block in run.blocks("samples")}
