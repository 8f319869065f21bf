"""The password of an archive's URL is in nothing that a command shows, writes or leaves, however it gets the URL."""

import pytest
from deadlines import END_S
from secret_search import ProcessWatch, files_with

PASSWORD = "never-to-be-seen-91bd"
"""No other text contains it; the server trusts its user with any."""
VARIABLE = "WEIGHBRIDGE_ARCHIVE"
PRINTS_ENVIRONMENT = ("sh", "-c", "env; env >&2; exit 3")


@pytest.fixture
def url(postgresql, tmp_path):
    """Return the address of an archive that nobody has made yet, with the password in it."""
    given = postgresql.url(tmp_path / "kept")
    assert ":s3cret@" in given
    return given.replace(":s3cret@", f":{PASSWORD}@")


def assert_unseen(workspace, *ended):
    """No file of the workspace and no output has it."""
    assert list(files_with(workspace.folder, PASSWORD.encode())) == []
    assert PASSWORD not in "".join(one.out + one.err for one in ended)


@pytest.mark.parametrize("as_option", [True, False], ids=["option", "variable"])
def test_what_a_run_leaves_has_no_password_of_its_archive(workspace, url, as_option):
    """Not its stats file, its journal, its reports, its logs, nor what a job prints of its environment."""
    words = ("--archive", url) if as_option else ()
    if not as_option:
        workspace.environ[VARIABLE] = url
    scenario = workspace.scenario(
        engines=["native"],
        job={"workload": "command", "command": list(PRINTS_ENVIRONMENT)},
        operation_count=4,
        allow_failures=True,
    )
    program, stats = workspace.start_run(scenario, "-v", *words)
    with ProcessWatch(PASSWORD) as watch:
        run = workspace.finish(program, stats, status=3)
    assert run.outcomes() == {"failed": 4}
    assert run.stats in files_with(workspace.folder, b"PATH=")
    # Until the master has read its arguments they are there for all to see; nothing else may ever show them.
    watch.assert_only_until(program.process.pid)
    shown = run.out + run.err + "".join(run.report(name) for name in ("text", "json", "html", "csv"))
    assert PASSWORD not in shown
    assert_unseen(workspace)


def test_what_weigh_leaves_has_no_password_of_its_archive(workspace, url):
    """It takes the variable alone; what it measures does not get it."""
    workspace.environ[VARIABLE] = url
    program = workspace.start(
        "bench-master", "weigh", "-e", "native", "-n", 3, "--ignore-failure", "--", *PRINTS_ENVIRONMENT
    )
    with ProcessWatch(PASSWORD) as watch:
        ended = program.wait_for_exit(END_S)
    assert watch.found == set()
    assert_unseen(workspace, ended)


def test_no_command_on_an_archive_tells_its_password(workspace, url, tmp_path):
    """In none of its answers, and not in a traceback, whether the archive answers or not."""
    run = workspace.run(workspace.scenario())
    one = run.run_id
    other = url.replace("/postgres?", "/nobody-made-this?")
    seen = []
    for words in (
        ("add", run.stats),
        ("import", workspace.folder),
        ("list",),
        ("show", one),
        ("tag", one, "t"),
        ("note", one, "n"),
        ("trend",),
        ("compare", one, one),
        ("export", one),
        ("acknowledge", one, "n"),
        ("verify",),
        ("prune", "--older-than", "1d"),
        ("rebuild",),
    ):
        for address in (url, other):
            seen.append(workspace.master("--debug", "archive", *words, "--archive", address))
            workspace.environ[VARIABLE] = address
            seen.append(workspace.master("--debug", "archive", *words))
            del workspace.environ[VARIABLE]
    assert {ended.status for ended in seen} <= {0, 2, 3}
    assert_unseen(workspace, *seen)
    assert list(files_with(tmp_path, PASSWORD.encode())) == []


@pytest.mark.parametrize(
    "words",
    [
        ("archive", "add", "URL"),
        ("archive", "list", "URL"),
        ("archive", "list", "--archivee=URL"),
        ("archive", "list", "--limit", "URL"),
        ("report-scenario", "URL"),
        ("compare", "URL", "URL"),
        ("run-scenario", "-f", "URL"),
        ("run-scenario", "-f", "quickstart", "--workers", "URL"),
        ("validate-scenario", "URL"),
        ("archive", "list", "--archive", "URL&sslpassword=x"),
        ("archive", "list", "--archive", "URL", "--archive", "URL"),
        ("archive", "list", "--archive", "postgresql://me:PASSWORD@[h/d?objects=/x"),
        ("archive", "list", "--archive", "postgresql://me:PASSWORD@h:x/d?objects=/x"),
        ("archive", "list", "--archive", "postgresql://me:a/PASSWORD@h/d?objects=/x"),
    ],
    ids=" ".join,
)
def test_a_url_in_a_wrong_place_is_shown_without_its_password(workspace, words):
    """What is wrong is told; the password is not."""
    address = f"postgresql://me:{PASSWORD}@h/d?objects=/x"
    given = [word.replace("URL", address).replace("PASSWORD", PASSWORD) for word in words]
    ended = workspace.master("--debug", *given)
    assert ended.status in {2, 3}
    assert ended.err
    assert_unseen(workspace, ended)
