"""The study of MySQL on Docker, small: all 14 cells for real, and nothing left of them."""

import pytest
from deadlines import BUILD_S, LONG_TEST_S
from service_runs import left_behind, require_tools
from workspace import Workspace, require_images

pytestmark = pytest.mark.docker

NATIVE = ["{engine: native, params.buffer_pool_size: 256MiB}", "{engine: native, params.buffer_pool_size: 1GiB}"]
SMALL = (
    "repeats=1",
    "jobs.oltp.params.tables=2",
    "jobs.oltp.params.table_size=1000",
    "jobs.oltp.params.threads=2",
    "jobs.oltp.params.warmup=1s",
    "jobs.oltp.params.time=1s",
    "matrix.params.buffer_pool_size=[256MiB, 1GiB]",
    f"matrix.include=[{', '.join(NATIVE)}]",
)


@pytest.fixture(scope="module")
def client():
    require_tools("mariadbd", "sysbench")
    opened = require_images("weighbridge/sysbench", "weighbridge/mariadb")
    yield opened
    opened.close()


@pytest.mark.slow
@pytest.mark.timeout(LONG_TEST_S)
def test_the_study_runs_small(tmp_path, client):
    """Every cell gives its figure: stock, and volume, host directory and data container on either network."""
    with Workspace(tmp_path) as workspace:
        flags = [word for text in SMALL for word in ("--set", text)]
        run = workspace.run("mysql-on-docker/oltp", *flags, seconds=BUILD_S)
        assert run.outcomes() == {"done": 14}
        rows = run.document["treatments"]
        assert len(rows) == 14
        for row in rows:
            assert row["metrics"]["transactions_per_second"]["n"] == 1
            assert row["metrics"]["transactions_per_second"]["median"] > 1
        assert left_behind(client, workspace, run) == []
