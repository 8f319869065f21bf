"""The pages of `bench-master serve`, over SQLite and PostgreSQL: what they show and refuse; and the real server."""

import html
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from archive_site import RUNS, fill, site_of
from deadlines import ANSWER_S, START_S

from bench_common.errors import InfrastructureError, UsageError
from bench_common.stats.reader import StatsFile
from bench_features.archive.archive import Archive
from bench_features.archive.site import site as site_module
from bench_features.archive.site.app import create_app, guarded
from bench_features.archive.site.site import BackgroundThread, Busy, ReportCache
from bench_master.cli import run_command_line

KEY = "engine=docker"


EITHER_DATABASE = pytest.mark.parametrize("served", ["sqlite", "postgresql"], indirect=True)


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def served(request, tmp_path_factory):
    """Return a client of a site, the ids of its runs, and the site."""
    folder = tmp_path_factory.mktemp("served")
    at = folder / "archive"
    url = str(at) if request.param == "sqlite" else request.getfixturevalue("postgresql").url(at)
    ids = fill(url, folder)
    site = site_of(url, folder / "reports")
    yield create_app(site).test_client(), ids, site
    site.background.close()
    site.archive.close()


def words(answer):
    """Return the text of a page, without its markup."""
    return html.unescape(re.sub(r"<[^>]+>", " ", answer.text))


def series_key(site, host="blade1"):
    return next(
        one.key for one in site.archive.series() if one.hosts == host and KEY in one.title and one.scenario != "other"
    )


@EITHER_DATABASE
def test_runs_are_searched_sorted_and_paged_by_the_address(served, monkeypatch):
    """All that a list shows is in its address, and its JSON is the same."""
    client, ids, _ = served
    page = client.get("/runs?scenario=quickstart&since=&sort=-failed")
    assert page.status_code == 200
    assert page.text.count('<th scope="row"') == RUNS
    assert 'value="quickstart"' in page.text
    assert 'aria-sort="descending"' in page.text
    assert "sort=failed" in page.text, "the other way round"
    found = client.get("/api/runs.json?scenario=quickstart&sort=created").json
    assert (found["count"], [run["id"] for run in found["runs"]]) == (RUNS, ids[:RUNS])
    assert [run["id"] for run in client.get("/api/runs.json?tag=release-1").json["runs"]] == ids[:1]
    assert client.get("/api/runs.json?host=blade2").json["count"] == 1
    assert client.get("/api/runs.json?since=2026-01-14&scenario=quickstart").json["count"] == 2
    for sort in ("scenario", "-scenario", "state", "done", "duration", "-size"):
        assert client.get(f"/runs?sort={sort}").status_code == 200
    monkeypatch.setattr("bench_features.archive.site.run_pages.PAGE_ROWS", 5)
    monkeypatch.setattr("bench_features.archive.site.site.PAGE_ROWS", 5)
    page = client.get("/runs?scenario=quickstart&page=2")
    assert "page 2 of 3" in page.text
    assert 'href="/runs?scenario=quickstart&amp;page=3" rel="next"' in page.text
    assert "No run is on this page" in client.get("/runs?page=99").text
    assert client.get("/").headers["Location"] == "/runs"


def test_a_run_has_its_report_its_notes_and_its_file(served, tmp_path):
    """The report is made once, and kept; the file that is sent is the one that was added."""
    client, ids, site = served
    page = client.get(f"/runs/{ids[0]}")
    assert page.status_code == 200
    for text in ("golden", "release-1", "blade1", "Run it again", "job.p50", "over runs"):
        assert text in words(page), text
    assert page.text.count("<svg ") >= 2
    assert "quickstart golden" in client.get("/runs/golden").text
    assert site.reports.get(site.archive.find(ids[0])) is not None
    answer = client.get(f"/runs/{ids[0]}/file")
    assert f"{ids[0]}.stats.gz" in answer.headers["Content-Disposition"]
    (tmp_path / "got").write_bytes(answer.data)
    assert StatsFile(tmp_path / "got").header["run_id"] == "run000000000"
    answer.close()
    found = client.get(f"/api/runs/{ids[0]}.json").json
    assert (found["run"]["name"], found["hosts"][0]["facts"]["kernel"]) == ("golden", "6.0.0")


def test_a_pruned_run_says_what_can_no_longer_be_asked(served):
    """What the index has of it is shown; its file, and comparisons with it, are gone."""
    client, ids, _ = served
    page = client.get(f"/runs/{ids[RUNS]}")
    assert page.status_code == 200
    assert "No longer to be asked: single jobs" in words(page)
    assert "job.p50" in page.text
    assert "Download" not in page.text
    for address in (f"/runs/{ids[RUNS]}/file", f"/compare?a={ids[0]}&b={ids[RUNS]}"):
        answer = client.get(address)
        assert answer.status_code == 410
        assert "was pruned" in words(answer)
    answer = client.get(f"/api/compare.json?a={ids[0]}&b={ids[RUNS]}")
    assert (answer.status_code, answer.json["status"]) == (410, 410)


def test_any_two_runs_are_compared(served):
    """As the command does it: ratios without a word, and what else differs; the other way round is a link."""
    client, ids, site = served
    page = client.get(f"/compare?a=golden&b={ids[12]}")
    assert page.status_code == 200
    text = words(page)
    assert text.count("REFUSED") >= 2
    assert "+30" in text
    assert "kernel" in text
    assert "6.0.0" in text
    assert f'href="/compare?a={ids[12]}&amp;b={ids[0]}"' in page.text
    assert len(site.compared) == 1
    found = client.get(f"/api/compare.json?a={ids[0]}&b={ids[12]}").json
    assert found["format"] == "weighbridge-verdicts"
    assert f'href="/compare?a={ids[0]}&amp;b={ids[5]}"' in client.get(f"/compare?a={ids[0]}").text
    assert f'href="/compare?a={ids[5]}&amp;b={ids[0]}"' in client.get(f"/compare?b={ids[0]}").text
    assert client.get("/compare").status_code == 200


def test_a_series_shows_its_step_and_where_the_machine_changed(served):
    """The chart at both widths, the change with its interval, the fact; another measure by the address."""
    client, ids, site = served
    key = series_key(site)
    listed = client.get("/series?host=blade1")
    assert f'href="/series/{key}"' in listed.text
    page = client.get(f"/series/{key}")
    assert page.status_code == 200
    text = words(page)
    assert "kernel 6.0.0 -> 6.1.0" in text
    assert "SLOWER" in text
    assert f'href="/runs/{ids[9]}"' in page.text
    assert (page.text.count('class="wide"'), page.text.count('class="narrow"')) == (1, 1)
    other = client.get(f"/series/{key}?measure=start.p95&across=version&margin=50%25&runs=8")
    assert "start.p95" in words(other)
    assert "newest 8 of 13 runs" in words(other)
    found = client.get(f"/api/series/{key}.json").json
    assert [change["run"] for change in found["trend"]["changes"]] == [ids[9]]
    assert found["trend"]["breaks"][0]["facts"] == [{"name": "kernel", "before": "6.0.0", "after": "6.1.0"}]
    assert client.get("/api/series.json?scenario=quickstart").json["count"] == 4


def test_hosts_have_a_history_and_differences(served):
    """A state of a host ends where a fact changes; of two hosts the facts that differ come first."""
    client, _, _ = served
    assert 'href="/host?name=blade1"' in client.get("/hosts").text
    states = client.get("/api/host.json?name=blade1").json["states"]
    assert [(state["runs"], state["facts"]["kernel"]) for state in states] == [(10, "6.1.0"), (4, "6.0.0")]
    page = client.get("/host?name=blade1")
    assert "kernel 6.0.0 -> 6.1.0" in words(page)
    found = client.get("/api/hosts/difference.json?a=blade2&b=%3Cscript%3Ealert(1)%3C/script%3E").json
    assert [fact["name"] for fact in found["facts"][: found["differences"]]] == ["kernel"]
    assert "1 fact differs" in words(client.get("/hosts/difference?a=blade2&b=%3Cscript%3Ealert(1)%3C/script%3E"))
    assert "No facts differ" in words(client.get("/hosts/difference?a=blade2&b=blade1"))


def test_hostile_texts_are_text(served):
    """Names, hosts, tags and notes of a run reach no page as markup."""
    client, ids, site = served
    key = series_key(site, host="<script>alert(1)</script>")
    for address in (
        "/runs",
        f"/runs/{ids[-1]}",
        f"/compare?a={ids[0]}&b={ids[-1]}",
        f"/compare?a={ids[-1]}",
        "/series",
        f"/series/{key}",
        "/hosts",
        "/host?name=<script>alert(1)</script>",
        "/runs?scenario=<script>alert(1)</script>",
        "/<script>alert(1)</script>",
    ):
        page = client.get(address)
        assert "<script>alert" not in page.text, address
        assert "\u202e" not in page.text, address
        assert page.content_type == "text/html; charset=utf-8"
        assert "script-src 'self'" in page.headers["Content-Security-Policy"]


def test_errors_are_pages_that_say_what_to_do(served, monkeypatch):
    """With the right status; a name that is wrong is answered with the nearest."""
    client, ids, site = served
    wrong = ids[0][:5] + ("0" if ids[0][5] != "0" else "1") + ids[0][6:]
    for address, status, text in (
        (f"/runs/{wrong}", 404, f"did you mean '{ids[0]}'?"),
        ("/runs/x", 404, "an id has 4 characters or more"),
        ("/runs?scenario=quikstart", 404, "did you mean 'quickstart'?"),
        ("/runs?scenrio=x", 400, "did you mean 'scenario'?"),
        ("/runs?sort=creatd", 400, "did you mean 'created'?"),
        ("/runs?page=0", 400, "expected a whole number from 1"),
        ("/runs?page=99999999999999999999", 400, "expected a whole number from 1"),
        ("/runs?since=yesterday", 400, "expected a date such as 2026-11-22"),
        ("/runs?since=%C2%B2d", 400, "expected a date such as 2026-11-22"),
        ("/runs?since=0001-01-01", 400, "expected a date such as 2026-11-22"),
        ("/series?since=%C2%B2d", 400, "expected a date such as 2026-11-22"),
        ("/runs?tag=a&tag=b", 400, "given twice"),
        (f"/runs?tag={'w' * 501}", 400, "longer than 500 characters"),
        ("/runs?tag=%00", 400, "not text"),
        ("/series/xx", 404, "no series of the archive"),
        (f"/series/{series_key(site)}?measure=strt.p95", 404, "did you mean 'start.p95'?"),
        (f"/series/{series_key(site)}?margin=x", 400, "margin="),
        (f"/series/{series_key(site)}?across=time", 400, "one of: date, version"),
        ("/host?name=blade", 404, "did you mean 'blade"),
        ("/host", 404, "choose one from the list of hosts"),
        ("/hosts/difference?a=blade1", 404, "two hosts are needed"),
        ("/serie", 404, "did you mean '/series'?"),
    ):
        answer = client.get(address)
        assert answer.status_code == status, address
        assert text in words(answer), address
        assert "Traceback" not in answer.text
    assert client.post("/runs").status_code == 405
    assert client.get("/api/runs/zzzz.json").json["status"] == 404

    def fail(*_):
        raise InfrastructureError("the database does not answer; check that it runs")

    monkeypatch.setattr(Archive, "count", fail)
    answer = client.get("/runs")
    assert (answer.status_code, "check that it runs" in words(answer)) == (503, True)
    monkeypatch.setattr(Archive, "count", lambda *_: 1 / 0)
    answer = client.get("/runs")
    assert (answer.status_code, "internal error: ZeroDivisionError" in words(answer)) == (500, True)


def no_home():
    raise RuntimeError("Could not determine home directory.")


def test_a_run_that_is_damaged_or_missing_says_so(tmp_path, monkeypatch):
    """Its page is there without a report; a report that is made is found again, and the oldest make room."""
    ids = fill(str(tmp_path / "archive"), tmp_path)
    site = site_of(str(tmp_path / "archive"), tmp_path / "reports")
    client = create_app(site).test_client()
    try:
        site.archive.objects.find(site.archive.find(ids[1])).unlink()
        assert "bench-master archive verify" in words(client.get(f"/runs/{ids[1]}"))
        assert client.get(f"/compare?a={ids[0]}&b={ids[1]}").status_code == 503
        site.archive.objects.find(site.archive.find(ids[2])).write_bytes(b"nonsense")
        assert "There is no report" in words(client.get(f"/runs/{ids[2]}"))
        small = ReportCache(tmp_path / "small", limit_bytes=60_000)
        for run in ids[3:9]:
            sha256 = site.archive.find(run)
            small.make(sha256, site.archive.objects.find(sha256))
        kept = list((tmp_path / "small").iterdir())
        assert sum(path.stat().st_size for path in kept) <= 60_000
        assert small.get(site.archive.find(ids[8])) is not None
        assert small.get(site.archive.find(ids[3])) is None
        (tmp_path / "file").write_text("")
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        monkeypatch.setattr(Path, "home", no_home)
        for nowhere in (tmp_path / "file", site_module.cache_folder()):
            cache, run = ReportCache(nowhere), site.archive.find(ids[8])
            assert "<svg" in cache.make(run, site.archive.objects.find(run))
            assert cache.get(run) is None
    finally:
        site.background.close()
        site.archive.close()


def test_work_beside_the_server_has_a_limit_and_a_deadline(monkeypatch):
    """An error comes back to who asked; what takes too long is said so, and goes on."""
    background = BackgroundThread()
    try:
        assert background.run(lambda: 42) == 42
        with pytest.raises(UsageError, match="as it is"):
            background.run(lambda: (_ for _ in ()).throw(UsageError("as it is")))
        import gevent
        from gevent.event import Event

        monkeypatch.setattr(site_module, "MOST_WAITING", 1)
        gate = Event()
        with pytest.raises(Busy, match="not ready after"):
            background.run(lambda: gate.wait(ANSWER_S), timeout_s=0.05)
        with pytest.raises(Busy, match="other pages are being made"):
            background.run(lambda: 1)
        gate.set()
        while background.waiting:
            gevent.sleep(0.01)
        assert background.run(lambda: 7) == 7
    finally:
        background.close()


# -- the guard and the real server ---------------------------------------------------------------------------------


def test_nobody_reads_without_the_token(served):
    """The page that asks for it keeps where one wanted to go; a form leads there, and to no other site."""
    from werkzeug.test import Client

    _, _, site = served
    client = Client(guarded(site, "127.0.0.1", 8090, "s3cret"))
    at = {"base_url": "http://127.0.0.1:8090"}
    page = client.get("/runs?sort=done&tag=%22x", **at)
    assert page.status_code == 401
    assert 'name="next" value="/runs?sort=done&amp;tag=%22x"' in page.text
    assert page.headers["Referrer-Policy"] == "same-origin"
    assert "form-action 'self'" in page.headers["Content-Security-Policy"]
    assert str(site.archive.address.shown) not in page.text
    assert client.get("/page.css", **at).status_code == 200
    assert client.get("/api/runs.json", **at).content_type.startswith("text/plain")
    assert client.get("/runs", base_url="http://evil.example").status_code == 421
    own = {"Origin": "http://127.0.0.1:8090"}
    assert client.post("/session", data={"token": "wrong"}, headers=own, **at).status_code == 403
    assert client.post("/session", data={"token": "s3cret"}, headers={"Origin": "null"}, **at).status_code == 403
    for given, there in (
        ("/runs?sort=done", "/runs?sort=done"),
        ("//evil.example/", "/"),
        ("/\\evil.example", "/"),
        ("https://evil.example", "/"),
        ("/runs\r\nX: y", "/"),
    ):
        answer = client.post("/session", data={"token": "s3cret", "next": given}, headers=own, **at)
        assert (answer.status_code, answer.headers["Location"]) == (303, there)
    assert "HttpOnly; SameSite=Lax" in answer.headers["Set-Cookie"]
    assert client.get("/runs", **at).status_code == 200
    assert client.get("/runs", headers={"Sec-Fetch-Site": "cross-site"}, **at).status_code == 403
    followed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert client.get("/runs", headers=followed, **at).status_code == 200
    assert Client(guarded(site, "127.0.0.1", 8090, None)).get("/runs", **at).status_code == 200


def test_what_is_typed_wrong_is_answered_on_one_line(tmp_path, capsys, monkeypatch):
    """An archive that is not there, an address that others reach, a taken port, and Flask that is missing."""
    fill(str(tmp_path / "archive"), tmp_path)
    taken = socket.create_server(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    archive = ["--archive", str(tmp_path / "archive")]
    for given, text in (
        (["--archive", str(tmp_path / "none")], "there is no archive"),
        ([*archive, "--bind", "0.0.0.0:0"], "add --insecure-bind"),
        ([*archive, "--bind", f"127.0.0.1:{port}"], "the port is taken"),
        ([*archive, "--bind", "here"], "expected ADDRESS:PORT"),
        ([*archive, "--no-tokn"], "--no-token"),
    ):
        try:
            code = run_command_line(["serve", *given])
        except SystemExit as end:
            code = end.code
        out, err = capsys.readouterr()
        assert (code, out) == (2, ""), given
        assert text in err
    monkeypatch.setitem(sys.modules, "flask", None)
    assert run_command_line(["serve", *archive]) == 2
    assert "pip install 'weighbridge[serve]'" in capsys.readouterr().err
    taken.close()


def test_the_server_answers_and_ends_at_once(tmp_path):
    """As a program: it prints where it is, serves over a real socket, survives slow clients, and ends by Ctrl-C."""
    ids = fill(str(tmp_path / "archive"), tmp_path)
    command = [sys.executable, "-m", "bench_master", "serve", "--archive", tmp_path / "archive", "--bind", "0"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            address = server.stdout.readline().strip()
            port, token = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/#t=(\S+)", address).groups()
            # One that says nothing keeps nobody else from an answer.
            with socket.create_connection(("127.0.0.1", int(port))):
                connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=START_S)
                headers = {"Origin": address.partition("/#")[0], "Content-Type": "application/json"}
                connection.request("POST", "/session", json.dumps({"token": token}), headers)
                answer = connection.getresponse()
                answer.read()
                cookie = {"Cookie": answer.headers["Set-Cookie"].partition(";")[0]}
                for path in ("/runs", f"/runs/{ids[0]}", f"/compare?a={ids[0]}&b={ids[1]}", f"/runs/{ids[0]}/file"):
                    connection.request("GET", path, headers=cookie)
                    answer = connection.getresponse()
                    assert (answer.status, bool(answer.read())) == (200, True), path
                connection.close()
            server.send_signal(signal.SIGINT)
            assert server.wait(START_S) == 130
            assert "interrupted" in server.stderr.read()
        finally:
            server.kill()
    assert list((tmp_path / "cache").rglob("*.html"))
