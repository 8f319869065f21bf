"""Whole runs with an engine that another package installs."""

import shutil

import imageless_engine
from workspace import Workspace


def install(folder):
    """Install the module as a package into a folder, as pip leaves it there."""
    metadata = folder / "imageless_engine-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: imageless-engine\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(imageless_engine.ENTRY_POINTS)
    shutil.copy(imageless_engine.__file__, folder)


def test_an_engine_without_images_needs_no_image(tmp_path):
    """The master reads from its traits that it has none: a scenario names only a command, and the run succeeds."""
    install(tmp_path / "site")
    with Workspace(tmp_path) as workspace:
        workspace.environ["PYTHONPATH"] = str(tmp_path / "site")
        run = workspace.run(workspace.scenario(engines=["imageless"], iterations=2, host_ceiling=True))
        assert run.outcomes() == {"done": 4}
        assert {one.labels["engine"] for one in run.header.treatments} == {"imageless", "native"}


def test_an_engine_without_images_needs_a_command(tmp_path):
    """The error names the engine as it is installed."""
    install(tmp_path / "site")
    with Workspace(tmp_path) as workspace:
        workspace.environ["PYTHONPATH"] = str(tmp_path / "site")
        scenario = workspace.scenario(engines=["imageless"], job={"operations": ["run", "remove"]})
        ended = workspace.master("validate-scenario", "-f", scenario)
        assert ended.status == 2
        assert "'container.command' is missing: engine imageless has no image" in ended.err
