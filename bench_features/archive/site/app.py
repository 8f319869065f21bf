"""The site of an archive: routes to the pages and their JSON, errors as pages that say what to do, and the server."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from bench_common import __version__
from bench_common.errors import InfrastructureError, UsageError, WeighbridgeError, did_you_mean
from bench_common.safe_text import one_line, shorten
from bench_features.archive.site import run_pages, series_pages
from bench_features.archive.site.site import BadAddress, NoLongerHere, Page, Site, View, link, read_parameters
from bench_master.reports.html import page_environment, page_style, template_text
from bench_master.web.guard import POLICY

if TYPE_CHECKING:
    from flask import Flask, Response
import ipaddress
import socket
from typing import TYPE_CHECKING

from bench_master.web.address import bound_address
from bench_master.web.guard import Guard, Headers, Refused, Rules, hosts_of, own_path
from bench_master.web.http_server import make_server

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication, WSGIEnvironment

PAGES: Final = (*run_pages.PAGES, *series_pages.PAGES)
SITE_FOLDER: Final = "bench_features.archive.site:pages"
HTML: Final = "text/html; charset=utf-8"
SITE_POLICY: Final = POLICY.replace("form-action 'none'", "form-action 'self'")
"""Searching is a form."""
ASSETS: Final[dict[str, tuple[str, Callable[[], str]]]] = {
    "/page.css": ("text/css; charset=utf-8", page_style),
    "/site.css": ("text/css; charset=utf-8", lambda: template_text("site.css", SITE_FOLDER)),
    "/page.js": ("text/javascript; charset=utf-8", lambda: template_text("page.js")),
    "/sign-in.js": ("text/javascript; charset=utf-8", lambda: template_text("sign-in.js", SITE_FOLDER)),
}
"""What every page loads, whoever asks: it shows nothing of the archive."""
_SECTIONS: Final = {"/runs": "Runs", "/compare": "Compare", "/series": "Series", "/hosts": "Hosts"}
_log = logging.getLogger(__name__)


def create_app(site: Site) -> Flask:
    """Return the application of a site; raise `UsageError` where Flask is not installed."""
    try:
        import flask
    except ImportError as error:
        raise UsageError("serve: needs Flask, which is not installed: pip install 'weighbridge[serve]'") from error
    app = flask.Flask(__name__, static_folder=None, template_folder=None)
    for path, (kind, text) in ASSETS.items():
        app.add_url_rule(path, path, _asset(kind, text), methods=["GET"])
    for page in PAGES:
        app.add_url_rule(page.path, page.path, _page(site, page), methods=["GET"])
        json_path = f"/api{page.path}.json"
        app.add_url_rule(json_path, json_path, _json(site, page), methods=["GET"])
    app.add_url_rule("/", "start", lambda: flask.redirect(link("/runs")), methods=["GET"])
    app.add_url_rule("/runs/<run>/file", "file", _file(site), methods=["GET"])
    app.register_error_handler(Exception, lambda error: _failed(site, error))
    return app


def _asset(kind: str, text: Callable[[], str]) -> Callable[[], Response]:
    return lambda: _answer(text(), kind)


def _answer(text: str | bytes, kind: str = HTML, status: int = 200) -> Response:
    import flask

    response = flask.Response(text, status, content_type=kind)
    response.headers["Content-Security-Policy"] = SITE_POLICY
    return response


def _view(site: Site, page: Page, path: dict[str, str]) -> View:
    import flask

    given = read_parameters(flask.request.args.items(multi=True), page.parameters)
    return page.show(site, given, **path)


def _page(site: Site, page: Page) -> Callable[..., Response]:
    def show(**path: str) -> Response:
        import flask

        view = _view(site, page, path)
        address = flask.request.path + (
            f"?{query}" if (query := flask.request.query_string.decode("latin-1")) else ""
        )
        as_json = f"/api{flask.request.path}.json" + address[len(flask.request.path) :]
        context = {"title": view.title, "as_json": as_json, "data": view.data, **view.more()}
        return _answer(render(site, page.template, section=f"/{page.path.split('/')[1]}", **context))

    return show


def _json(site: Site, page: Page) -> Callable[..., Response]:
    def show(**path: str) -> Response:
        view = _view(site, page, path)
        return _answer(msgspec.json.encode(view.data, enc_hook=str), "application/json")

    return show


def _file(site: Site) -> Callable[[str], Response]:
    def send(run: str) -> Response:
        import flask

        details = site.archive.run(run)
        if details.file is None:
            error = NoLongerHere if details.row.pruned else InfrastructureError
            raise error(run_pages.why_no_file(details))
        name = f"{details.row.id}.stats.gz"
        return flask.send_file(details.file, "application/gzip", as_attachment=True, download_name=name, etag=False)

    return send


def render(site: Site, template: str, *, section: str = "", **context: Any) -> str:
    """Return a page of the site."""
    page = page_environment(SITE_FOLDER).get_template(template)
    shown = site.archive.address.shown
    section = {"/host": "/hosts"}.get(section, section)
    return page.render(sections=_SECTIONS, section=section, archive=shown, version=__version__, link=link, **context)


# -- errors ---------------------------------------------------------------------------------------------------------


def _failed(site: Site, error: Exception) -> Response:
    """Return the page, or the JSON, that says what is wrong and what to do."""
    import flask

    status, text = _status(error)
    text = shorten(one_line(text), 1000)
    if flask.request.path.startswith("/api/"):
        body = msgspec.json.encode({"status": status, "error": text})
        return _answer(body, "application/json", status)
    response = _answer(error_page(site, status, text), HTML, status)
    if status == 405:  # noqa: PLR2004
        response.headers["Allow"] = "GET, HEAD"
    return response


def _status(error: Exception) -> tuple[int, str]:
    from werkzeug.exceptions import HTTPException

    match error:
        case BadAddress():
            return 400, error.message
        case NoLongerHere():
            return 410, error.message
        case UsageError():
            # The filters of lists have the names of options.
            return 404, error.message.removeprefix("--")
        case WeighbridgeError():
            return 503, error.message
        case HTTPException() if error.code == 404:  # noqa: PLR2004
            import flask

            path = flask.request.path
            return 404, f"{path}: there is no such page{did_you_mean(path, _SECTIONS)}"
        case HTTPException():
            return error.code or 500, error.description or error.name
    _log.error("internal error", exc_info=error)
    return 500, f"internal error: {type(error).__name__}: {error} (the terminal of bench-master serve has more)"


_TITLES: Final = {
    400: "This address is wrong",
    401: "Sign in",
    403: "Not allowed",
    404: "Not found",
    405: "Not allowed: pages can only be read",
    410: "Not here any more",
    421: "Not the name of this server",
    503: "Not possible now",
}


def error_page(site: Site | None, status: int, text: str, sign_in: str | None = None) -> str:
    """Return the page of an error; with `sign_in` it asks for the token, and then leads to this address."""
    title = _TITLES.get(status, "This page has failed")
    environment = page_environment(SITE_FOLDER)
    sections = _SECTIONS if site is not None and sign_in is None else {}
    archive = site.archive.address.shown if site is not None and sign_in is None else ""
    return environment.get_template("error.html.j2").render(
        sections=sections, section="", archive=archive, version=__version__, as_json="", title=title, status=status,
        text=text, sign_in=sign_in,
    )  # fmt: skip


_NO_SESSION: Final = "401"
_OPEN: Final = "/api/"


def guarded(site: Site, host: str, port: int, token: str | None) -> WSGIApplication:
    """Return the application behind the guard, as a server at an IP address and port has it."""
    rules = Rules(
        hosts=hosts_of(host),
        any_address=ipaddress.ip_address(host).is_unspecified,
        token=token,
        cookie=f"weighbridge-{port}",
        open_paths=frozenset(ASSETS),
        # Addresses are made to be sent to others; nothing that a link could lead to changes anything.
        same_site="Lax",
        refusal=_refusal,
    )
    return Guard(create_app(site), rules)


def _refusal(refused: Refused, environ: WSGIEnvironment) -> tuple[Headers, bytes] | None:
    """Return the page for a refused request; the one without a session asks for the token."""
    if environ.get("PATH_INFO", "").startswith(_OPEN):
        return None
    status = refused.status.partition(" ")[0]
    sign_in = None
    if status == _NO_SESSION:
        query = environ.get("QUERY_STRING", "")
        sign_in = own_path(environ.get("PATH_INFO", "/") + (f"?{query}" if query else ""))
    page = error_page(None, int(status), one_line(str(refused)), sign_in)
    headers = [("Content-Type", HTML), ("Content-Security-Policy", SITE_POLICY)]
    # Without it the form would not say where it comes from.
    return [*headers, ("Referrer-Policy", "same-origin")], page.encode()


def serve_forever(site: Site, listener: socket.socket, token: str | None) -> None:
    """Serve until the process is interrupted."""
    address = bound_address(listener)
    server = make_server(listener, guarded(site, address.host, address.port, token))
    try:
        server.serve_forever()
    finally:
        server.close()
