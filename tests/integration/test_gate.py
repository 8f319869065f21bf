"""The gate of a pull request: its steps run as they stand in the files, with an API of ours for the real one."""

import itertools
import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from attention import undisturbed
from deadlines import ANSWER_S, LONG_END_S
from documents import ROOT

ACTION = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
GITLAB = yaml.safe_load((ROOT / "templates" / "gate.gitlab-ci.yml").read_text("utf-8"))[".weighbridge"]


class Api(ThreadingHTTPServer):
    """Keeps comments as both systems do: lists them, adds one, replaces one; notes what was asked of it."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answers)
        self.refuses = False
        self.forget()

    def forget(self):
        """Have what was there before anybody asked."""
        self.comments, self.asked = [{"id": 7, "body": "by somebody else"}], []

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_port}"


class Answers(BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer()

    do_POST = do_PATCH = do_PUT = do_GET  # noqa: N815  the names of the standard library

    def answer(self):
        api, size = self.server, int(self.headers.get("Content-Length", 0))
        content = json.loads(self.rfile.read(size)) if size else {}
        token = self.headers.get("Authorization") or self.headers.get("PRIVATE-TOKEN")
        api.asked.append((self.command, self.path.partition("?")[0], token))
        found = api.comments
        if self.command == "POST":
            api.comments.append({"id": 100 + len(api.comments), **content})
        elif self.command in ("PATCH", "PUT"):
            number = int(self.path.rpartition("/")[2])
            next(comment for comment in api.comments if comment["id"] == number).update(content)
        self.send_response(403 if api.refuses else 200)
        self.end_headers()
        self.wfile.write(json.dumps(found).encode())

    def log_message(self, *words):
        pass


@pytest.fixture
def api():
    """The API of a code host on this machine."""
    with Api() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join(ANSWER_S)


def git(folder, *words):
    """Run git as somebody, whatever is configured here; return what it printed."""
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(folder), *who, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=ANSWER_S).stdout.strip()


@pytest.fixture
def project(tmp_path):
    """A clone of two commits whose program is built from its source; the second one is slower by far."""
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "--quiet")
    for pause in ("0", "0.5"):
        (folder / "source").write_text(f"#!/bin/sh\nexec sleep {pause}\n")
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "--message", f"sleeps {pause} s")
    return folder


def environment(**more):
    """Return this environment with our programs on PATH and nothing of the CI that runs these tests."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("GITHUB_", "CI_", "GITLAB_"))}
    return {**kept, "PATH": f"{Path(sys.executable).parent}:{kept['PATH']}", **more}


def shell(script, folder, variables):
    """Run a script as a runner does; return its exit code and what it printed."""
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=LONG_END_S,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def run_action(project, folder, api, **inputs):
    """Run the steps of action.yml for a pull request from the first commit to the second; return codes by step."""
    base, head = git(project, "rev-parse", "HEAD~1"), git(project, "rev-parse", "HEAD")
    for name in ("temp", "temp/output"):
        (folder / name).mkdir(exist_ok=True, parents=True)
    event = folder / "event.json"
    pull_request = {"number": 12, "base": {"sha": base}, "head": {"sha": head}}
    event.write_text(json.dumps({"pull_request": pull_request}))
    values = {f"inputs.{name}": str(given.get("default", "")) for name, given in ACTION["inputs"].items()}
    values |= {f"inputs.{name.replace('_', '-')}": text for name, text in inputs.items()}
    values |= {"inputs.install": "false", "github.token": "secret", "github.event_name": "pull_request"}
    values |= {f"github.event.pull_request.{side}.sha": pull_request[side]["sha"] for side in ("base", "head")}
    output, summary = folder / "output", folder / "summary"
    output.touch()

    def filled(text):
        while "${{" in text:
            text = re.sub(r"\$\{\{\s*([\w.-]+)\s*\}\}", lambda found: values[found[1]], text)
        return text

    codes = {}
    for step in ACTION["runs"]["steps"]:
        if step.get("if") == "inputs.install == 'true'" or "run" not in step:
            continue
        variables = environment(
            GITHUB_ACTION_PATH=str(ROOT),
            GITHUB_API_URL=api.address,
            GITHUB_EVENT_PATH=str(event),
            GITHUB_OUTPUT=str(output),
            GITHUB_REPOSITORY="somebody/project",
            GITHUB_STEP_SUMMARY=str(summary),
            RUNNER_TEMP=str(folder / "temp"),
            **{name: filled(text) for name, text in step.get("env", {}).items()},
        )
        code, printed = shell(step["run"], project, variables)
        codes[step["name"]] = code
        for line in output.read_text().splitlines():
            name, _, text = line.partition("=")
            values[f"steps.{step.get('id', 'weigh')}.outputs.{name}"] = text
        if code:
            break
        assert "::warning::" not in printed, printed
    return codes, summary.read_text() if summary.exists() else ""


def test_a_slower_head_fails_and_is_told_in_summary_and_comment(project, tmp_path, api):
    """The steps of the action, in order: only the gate fails, and nothing stays behind in the clone."""
    words = {"build": "cp source program && chmod +x program", "command": "./program", "runs": "6"}
    folders = (tmp_path / f"round-{number}" for number in itertools.count())

    def gated():
        # Six runs are few: a single one in which the machine stands still for as long leaves them undecided.
        api.forget()
        folder = next(folders)
        codes, summary = run_action(project, folder, api, **words)
        assert codes == {"Build and weigh": 0, "Summary of the job": 0, "Comment": 0, "Gate": 1}
        return folder, summary

    folder, summary = undisturbed(gated)
    assert "| head " in summary
    assert "SLOWER" in summary
    assert [comment["body"].endswith(summary) for comment in api.comments] == [False, True]
    assert api.asked == [
        ("GET", "/repos/somebody/project/issues/12/comments", "Bearer secret"),
        ("POST", "/repos/somebody/project/issues/12/comments", "Bearer secret"),
    ]
    kept = folder / "temp" / "weighbridge-gate"
    assert {path.name for path in kept.iterdir()} == {"report.html", "report.md", "run.stats.gz"}
    assert len(git(project, "worktree", "list").splitlines()) == 1


def test_a_build_that_fails_is_no_verdict(project, tmp_path, api):
    """Exit code 3, no summary, no comment."""
    codes, summary = run_action(project, tmp_path / "one", api, build="exit 9", command="./program")
    assert (codes["Gate"], summary, api.asked) == (3, "", [])
    assert len(git(project, "worktree", "list").splitlines()) == 1


def test_a_gitlab_job_comments_and_passes(project, tmp_path, api):
    """The script of the template, with a condition that does not come true."""
    variables = environment(
        **GITLAB["variables"]
        | {
            "CI_API_V4_URL": api.address,
            "CI_COMMIT_SHA": git(project, "rev-parse", "HEAD"),
            "CI_MERGE_REQUEST_DIFF_BASE_SHA": git(project, "rev-parse", "HEAD~1"),
            "CI_MERGE_REQUEST_IID": "3",
            "CI_PROJECT_ID": "44",
            "GITLAB_TOKEN": "secret",
            "WEIGHBRIDGE_COMMAND": "sh ./source",
            "WEIGHBRIDGE_FAIL_ON": "faster",
            "WEIGHBRIDGE_HOME": str(ROOT),
            "WEIGHBRIDGE_RUNS": "6",
        }
    )
    (script,) = GITLAB["script"]

    def passed():
        code, printed = shell(script, project, variables)
        assert code == 0, printed

    undisturbed(passed)
    assert api.asked[-1] == ("POST", "/projects/44/merge_requests/3/notes", "secret")
    assert (project / GITLAB["artifacts"]["paths"][0] / "report.html").stat().st_size > 0


def post(folder, text, **variables):
    """Post a report; return the exit code and what was printed."""
    (folder / "report.md").write_text(text)
    return shell(f"{ROOT}/script/post-report {folder}/report.md", folder, environment(**variables))


@pytest.mark.parametrize("system", ["github", "gitlab"])
def test_the_comment_is_replaced_by_the_next_run(system, tmp_path, api):
    """There is one, however often the gate runs; what others wrote stays."""
    event = tmp_path / "event.json"
    event.write_text('{"pull_request": {"number": 12}}')
    variables = {
        "github": {
            "GITHUB_API_URL": api.address,
            "GITHUB_EVENT_PATH": str(event),
            "GITHUB_REPOSITORY": "a/b",
            "GITHUB_TOKEN": "t",
        },
        "gitlab": {
            "CI_API_V4_URL": api.address,
            "CI_MERGE_REQUEST_IID": "3",
            "CI_PROJECT_ID": "44",
            "GITLAB_TOKEN": "t",
        },
    }[system]
    api.comments += [{"id": number, "body": "another"} for number in range(10, 100)]
    for text in ("first", "second", "third"):
        assert post(tmp_path, text, **variables) == (0, "")
    ours = [comment["body"] for comment in api.comments if "weighbridge" in comment["body"]]
    assert [body.splitlines()[1:] for body in ours] == [["third"]]
    assert api.comments[0] == {"id": 7, "body": "by somebody else"}


def test_an_api_that_refuses_is_told(tmp_path, api):
    """With the place, its answer and what may be missing; a report that is none, with exit code 2."""
    api.refuses = True
    where = {"CI_API_V4_URL": api.address, "CI_MERGE_REQUEST_IID": "3", "CI_PROJECT_ID": "4", "GITLAB_TOKEN": "t"}
    code, printed = post(tmp_path, "text", **where)
    assert code == 3
    assert "403" in printed
    assert "the token needs the right to write comments" in printed
    code, printed = post(tmp_path, "text")
    assert (code, printed) == (2, "post-report: GITHUB_EVENT_PATH is not set; see --help\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("nowhere HEAD true", "'nowhere' is no commit of this clone"),
        ("HEAD true", "expected BASE, HEAD and one quoted COMMAND, not 2 words"),
        ("--fast HEAD HEAD true", "unknown option '--fast'"),
        ("HEAD HEAD true --build", "--build needs a value"),
    ],
)
def test_wrong_words_are_refused(words, said, project):
    """With exit code 2 and what was expected, before anything is built."""
    code, printed = shell(f"{ROOT}/script/compare-builds {words}", project, environment())
    assert code == 2
    assert said in printed
    assert len(git(project, "worktree", "list").splitlines()) == 1
