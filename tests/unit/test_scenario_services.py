"""Services in a scenario: configured where their workload has them, inherited, varied, and reached."""

import msgspec
import pytest

from bench_common.errors import ScenarioError
from bench_common.job_kind import read_job
from bench_common.requirements import ignored_settings, unsupported_features
from bench_common.treatment import Mount, Treatment
from bench_master.run.preflight import check_compatibility
from bench_master.scenario.load import parse_scenario
from bench_master.scenario.yaml_tree import Source

OLTP = "name: a\njob: {workload: sysbench-oltp%s}\n"
SETTINGS = "/etc/weighbridge/my.cnf"


def treatments(text):
    return parse_scenario(Source("s.yaml", text)).treatments


def refused(text):
    with pytest.raises(ScenarioError) as caught:
        treatments(text)
    return [str(problem) for problem in caught.value.problems]


def test_a_service_has_the_image_of_its_workload_and_the_settings_of_the_parameters():
    """Nothing has to be said of it; the buffer pool's size becomes a file."""
    (one,) = treatments(OLTP % ", params: {buffer_pool_size: 256MiB}")
    service = one.services["mariadb"]
    assert service.image == "weighbridge/mariadb"
    assert service.files == {SETTINGS: "[mariadbd]\ninnodb_buffer_pool_size = 268435456\n"}
    assert one.container.network is None


def test_services_are_merged_key_by_key_and_files_path_by_path():
    """The top level, a job and a cell each have their say; the scenario's file goes before that of the parameters."""
    text = f"""
name: a
services: {{mariadb: {{memory: 1GiB, env: {{A: "1", B: "2"}}, files: {{/etc/x: one}}}}}}
matrix:
  services.mariadb.storage: [[], [{{volume: , target: /var/lib/mysql}}]]
job:
  workload: sysbench-oltp
  services: {{mariadb: {{env: {{B: "3"}}, files: {{{SETTINGS}: "[mariadbd]\\n"}}}}}}
"""
    stock, volume = treatments(text)
    for one in (stock, volume):
        service = one.services["mariadb"]
        assert service.memory_bytes == 2**30
        assert service.env == {"A": "1", "B": "3"}
        assert service.files == {"/etc/x": "one", SETTINGS: "[mariadbd]\n"}
    assert stock.services["mariadb"].storage == ()
    assert volume.services["mariadb"].storage == (Mount("volume", "/var/lib/mysql"),)
    assert [one.labels["storage"] for one in (stock, volume)] == ["none", "volume"]


@pytest.mark.parametrize(
    ("written", "kind"),
    [("{host: , target: /d}", "host"), ("{data_container: , target: /d}", "data_container")],
)
def test_storage_that_is_made_for_a_container_needs_no_name(written, kind):
    """A host directory or a data container of its own."""
    (one,) = treatments(OLTP % f", services: {{mariadb: {{storage: [{written}]}}}}")
    assert one.services["mariadb"].storage == (Mount(kind, "/d"),)


def test_services_survive_the_wire():
    """A worker gets what the master resolved."""
    (one,) = treatments(OLTP % ", services: {mariadb: {network: bridge, storage: [{data_container: , target: /d}]}}")
    assert msgspec.convert(one.to_dict(), Treatment, dec_hook=read_job) == one
    old = one.to_dict()
    del old["services"]
    assert msgspec.convert(old, Treatment, dec_hook=read_job).services == {}


def test_a_client_goes_where_its_server_is():
    """A server in the host's network is reached from there only."""
    host = ", services: {mariadb: {network: host}}"
    (one,) = treatments(OLTP % host)
    assert one.container.network == "host"
    (problem,) = refused(OLTP % f"{host}, container: {{network: bridge}}")
    assert "uses network 'bridge' and cannot reach mariadb, which uses the host's network" in problem
    (native,) = treatments(OLTP % f"{host}, container: {{network: bridge}}, engines: [native]")
    assert native.container.network == "bridge"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (OLTP % ", services: {maria: {}}", "unknown key 'maria' in the services (did you mean 'mariadb'?)"),
        (OLTP % ", services: {mariadb: {command: [x]}}", "unknown key 'command' in the service"),
        (OLTP % ", services: {mariadb: {files: {etc/x: a}}}", "'etc/x' cannot be a key here"),
        (OLTP % ", services: {mariadb: {files: {/etc/../x: a}}}", "'/etc/../x' cannot be a key here"),
        (OLTP % ", services: {mariadb: {files: {/x: [a]}}}", "expected the text of a file"),
        (OLTP % ", services: {mariadb: {storage: [{data_container: x, target: /d}]}}", "expected nothing"),
        (
            "name: a\njob: {workload: sysbench-cpu, services: {mariadb: {}}}\n",
            "workload sysbench-cpu has no service 'mariadb'; the services are: none",
        ),
        (
            "name: a\njob: {operations: [run], container: {image: i}, services: {mariadb: {}}}\n",
            "a life-cycle job has no service 'mariadb'",
        ),
    ],
)
def test_what_no_service_can_have_is_refused(text, said):
    """At its place, with what was expected."""
    assert any(said in problem for problem in refused(text))


def test_what_an_engine_cannot_do_for_a_service_is_refused_as_for_any_container():
    """The reason names the service."""
    (one,) = treatments(OLTP % ", services: {mariadb: {memory: 1GiB, network: bridge}}")
    status = {
        "name": "e",
        "usable": True,
        "settings": ["image", "files"],
        "inapplicable": ["network"],
        "runs_services": True,
    }
    assert unsupported_features(status, one) == [
        "engine 'e' cannot enforce service mariadb's memory=1GiB: it does not know this setting"
    ]
    assert ignored_settings(status, one) == [
        "engine 'e' has no network: service mariadb's network='bridge' is left out"
    ]


def test_a_service_is_where_its_engine_can_reach_it():
    """An engine without networks of its own reaches the host's alone: another one is refused with what to write."""
    status = {"name": "e", "usable": True, "settings": ["image", "files", "network"], "runs_services": True}
    status["details"] = {"services.network": "host"}
    (plain,) = treatments(OLTP % "")
    (reason,) = unsupported_features(status, plain)
    assert reason.startswith("engine 'e' reaches services in the network 'host' alone: give it to service mariadb ")
    assert reason.endswith("(services: {mariadb: {network: host}})")
    (told,) = treatments(OLTP % ", services: {mariadb: {network: host}}")
    assert unsupported_features(status, told) == []


def test_a_host_directory_of_the_workers_own_needs_no_permission():
    """One that is named does, also for a service."""
    able = {
        "usable": True,
        "settings": ["image", "files", "storage"],
        "runs_services": True,
        "details": {"storage.own": "directories"},
    }
    info = {"engines": {"docker": able}}

    def reasons(host):
        (one,) = treatments(OLTP % f", services: {{mariadb: {{storage: [{{host: {host}, target: /d}}]}}}}")
        return check_compatibility([one], environment="x", slots=1, info=info, noop=False).reasons

    assert reasons("") == ()
    assert reasons("/srv") == ("host directory /srv may not be mounted: start it with --allow-host-mounts",)


@pytest.mark.parametrize(
    ("mount", "what"),
    [("{host: , target: /d}", "host directory of its own"), ("{data_container: , target: /d}", "data container")],
)
def test_storage_that_an_engine_does_not_make_is_refused(mount, what):
    """An engine without directories and data containers of its own would leave them out without a word."""
    (one,) = treatments(OLTP % f", services: {{mariadb: {{storage: [{mount}]}}}}")
    status = {"name": "e", "usable": True, "settings": ["image", "files", "storage"], "runs_services": True}
    assert unsupported_features(status, one) == [
        f"engine 'e' makes no {what} for a container: give the storage at /d another form"
    ]
    assert unsupported_features(status | {"inapplicable": ["storage"]}, one) == []


def test_an_engine_that_cannot_say_where_a_container_is_runs_no_services():
    """It is refused before anything runs, with the service that it would be for."""
    (one,) = treatments(OLTP % "")
    status = {"name": "e", "usable": True, "settings": ["image", "files"]}
    assert unsupported_features(status, one) == [
        "engine 'e' runs no services (mariadb): it cannot say at which address a container is reached"
    ]
    (cpu,) = treatments("name: a\njob: {workload: sysbench-cpu}\n")
    assert unsupported_features(status, cpu) == []
