"""Puts a report into a pull or merge request, as one comment that the next one replaces: ``script/post-report``."""

import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path

MARK = "<!-- weighbridge: this comment is replaced by the next run -->"
MAX_CHARACTERS = 60_000
"""GitHub takes 65,536 characters in a comment."""
TIMEOUT_S = 30
PAGE = 100
MAX_PAGES = 50


class RefusedError(Exception):
    """What the user has to be told, with the exit code."""

    def __init__(self, message, status):
        super().__init__(message)
        self.status = status


def needed(name):
    """Return a variable of the environment."""
    if not os.environ.get(name):
        raise RefusedError(f"{name} is not set; see --help", 2)
    return os.environ[name]


def place():
    """Return the address of the comments, the header that identifies us, and the method that replaces one.

    GitHub has the address of one comment beside those of a pull request, GitLab below them.
    """
    if os.environ.get("CI_API_V4_URL"):
        project, number = needed("CI_PROJECT_ID"), needed("CI_MERGE_REQUEST_IID")
        comments = f"{os.environ['CI_API_V4_URL']}/projects/{project}/merge_requests/{number}/notes"
        return comments, comments, {"PRIVATE-TOKEN": needed("GITLAB_TOKEN")}, "PUT"
    event = Path(needed("GITHUB_EVENT_PATH"))
    try:
        number = int(json.loads(event.read_text(encoding="utf-8"))["pull_request"]["number"])
    except (OSError, ValueError, KeyError, TypeError):
        raise RefusedError(f"{event}: is no event of a pull request", 2) from None
    issues = f"{needed('GITHUB_API_URL')}/repos/{needed('GITHUB_REPOSITORY')}/issues"
    header = {"Authorization": f"Bearer {needed('GITHUB_TOKEN')}", "Accept": "application/vnd.github+json"}
    return f"{issues}/{number}/comments", f"{issues}/comments", header, "PATCH"


def ask(method, address, header, content=None):
    """Ask the API; return its answer."""
    if not address.startswith(("http://", "https://")):
        raise RefusedError(f"{address}: expected an address that begins with https://", 2)
    data = None if content is None else json.dumps(content).encode()
    request = urllib.request.Request(  # noqa: S310  checked above
        address, data, {**header, "Content-Type": "application/json"}, method=method
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310  likewise
            return json.load(answer)
    except urllib.error.HTTPError as error:
        what = error.read(500).decode(errors="replace")
        advice = "; the token needs the right to write comments" if error.code in {401, 403, 404} else ""
        raise RefusedError(f"{method} {address}: {error.code} {what}{advice}", 3) from error
    except (OSError, ValueError) as error:
        raise RefusedError(f"{method} {address}: {error}", 3) from error


def earlier(comments, header):
    """Return the number of our comment; None where there is none yet."""
    for page in range(1, MAX_PAGES + 1):
        found = ask("GET", f"{comments}?per_page={PAGE}&page={page}", header)
        for comment in found:
            if str(comment.get("body", "")).startswith(MARK):
                return comment["id"]
        if len(found) < PAGE:
            return None
    return None


def main(words):
    """Post the report that the words name; return the exit code."""
    try:
        if len(words) != 1:
            raise RefusedError("expected one report; see --help", 2)
        try:
            report = Path(words[0]).read_text(encoding="utf-8")
        except OSError as error:
            raise RefusedError(f"{words[0]}: {error.strerror}", 2) from error
        if len(report) > MAX_CHARACTERS:
            report = f"{report[:MAX_CHARACTERS]}\n\n(cut; the whole report is an artefact of the job)\n"
        comments, one, header, replace = place()
        number = earlier(comments, header)
        content = {"body": f"{MARK}\n{report}"}
        if number is None:
            ask("POST", comments, header, content)
        else:
            ask(replace, f"{one}/{number}", header, content)
    except RefusedError as refusal:
        print(f"post-report: {refusal}", file=sys.stderr)
        return refusal.status
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
