"""What tests of jobs with servers beside them share."""

import shutil

from busybox_image import skip_or_fail
from workspace import containers_of

from bench_common.errors import StatsFileError
from bench_common.stats.reader import StatsFile
from bench_worker.engines.base import RUN_LABEL


def require_tools(*tools):
    """Skip, or fail in CI, where one of these programs is missing."""
    for tool in tools:
        if shutil.which(tool, path="/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin") is None:
            skip_or_fail(f"{tool} is missing; script/test installs it")


def left_behind(client, workspace, run):
    """Return what is still there of a run: containers, volumes, private directories."""
    volumes = client.volumes(filters={"label": f"{RUN_LABEL}={run.run_id}"})["Volumes"] or []
    home = next(iter((workspace.folder / "tmp").glob("weighbridge-native-*")), None)
    directories = list(home.iterdir()) if home is not None else []
    return [*containers_of(client, run.run_id), *volumes, *directories]


def outputs_of(run):
    """Return the kept outputs by job and step."""
    return {(record.ticket, record.step): record for block in run.blocks("outputs") for record in block}


def server_of_running(client, stats):
    """Return the server of the run with this stats file, once its benchmark is under way."""
    try:
        run_id = StatsFile(stats).header.run_id
    except StatsFileError:
        return None
    ours = containers_of(client, run_id)
    servers = [one for one in ours if one["Image"] == "weighbridge/mariadb"]
    return servers[0] if any(one["Command"].startswith("sysbench") for one in ours) else None
