"""A small Keystone in front of a Swift's tempauth: what it is asked and answers is Keystone's, versions 2.0 and 3.

    python keystone_stub.py PORT TEMPAUTH_URL

User and password are tempauth's (project `test`, user `tester`, password `testing`), and so is the token, so Swift
needs no middleware. The catalogue has the object store in RegionOne and RegionTwo, with a public, an internal and an
admin URL each; the internal one of RegionTwo leads nowhere. `GET /logins` tells how many logins succeeded.

Faults by user name: `slow` is answered after 3 s, `gone` with 503, `odd` with a body that is no JSON, `nocatalog`
gets an empty catalogue, `invalid` a token that Swift refuses, and the token of `hasty` lives 3 s, as it says.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from deadlines import ANSWER_S

FAULTY = ("slow", "nocatalog", "invalid", "hasty")
NOWHERE = "http://127.0.0.1:9/v1/AUTH_test"
CREDENTIAL = ("app-id", "app-name", "app-secret")
"""The id, name and secret of the one application credential, which is the user's of tempauth."""


class Keystone(BaseHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"
    tempauth = ""
    logins = 0
    lock = threading.Lock()

    def log_message(self, *_):
        """Nobody reads it."""

    def do_GET(self):
        base = f"http://{self.headers['Host']}"
        versions = [{"id": name, "status": "stable", "links": [{"rel": "self", "href": f"{base}/{path}/"}]}
                    for name, path in (("v3.14", "v3"), ("v2.0", "v2.0"))]  # fmt: skip
        match self.path.strip("/"):
            case "logins":
                self.answer(200, {"logins": type(self).logins})
            case "v3":
                self.answer(200, {"version": versions[0]})
            case "v2.0":
                self.answer(200, {"version": versions[1]})
            case _:
                self.answer(300, {"versions": {"values": versions}})

    def do_POST(self):
        auth = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["auth"]
        if self.path == "/v3/auth/tokens":
            self.version_3(auth)
        elif self.path == "/v2.0/tokens":
            self.version_2(auth)
        else:
            self.refuse(404, "Not Found", f"no such resource: {self.path}")

    def version_3(self, auth):
        identity = auth["identity"]
        (method,) = identity["methods"]
        if method == "application_credential":
            found = identity[method]
            known = (found.get("id"), found.get("name")) in ((CREDENTIAL[0], None), (None, CREDENTIAL[1]))
            if not known or found["secret"] != CREDENTIAL[2]:
                return self.refuse(401, "Unauthorized", "The request you have made requires authentication.")
            user, password, project = "tester", "testing", "test"
        elif method == "token":
            return self.refuse(401, "Unauthorized", "Failed to validate token")
        else:
            who = identity["password"]["user"]
            user, password = who.get("name") or who["id"], who["password"]
            if "name" in who and not who.get("domain"):
                return self.refuse(400, "Bad Request", "Expecting to find domain in user.")
            scope = auth.get("scope", {}).get("project", {})
            project = scope.get("name") or scope.get("id") or ""
        granted = self.log_in(user, password, project)
        if granted is None:
            return None
        token, url, life_s = granted
        endpoints = [
            {"interface": interface, "region": region, "region_id": region, "url": address}
            for region, interface, address in self.endpoints(user, url)
        ]
        catalog = [{"type": "object-store", "name": "swift", "endpoints": endpoints}] if endpoints else []
        body = {"methods": [method], "expires_at": at(life_s), "issued_at": at(0), "user": {"name": user}}
        return self.answer(201, {"token": {**body, "catalog": catalog}}, {"X-Subject-Token": token})

    def version_2(self, auth):
        given = auth["passwordCredentials"]
        granted = self.log_in(
            given["username"], given["password"], auth.get("tenantName") or auth.get("tenantId", "")
        )
        if granted is None:
            return
        token, url, life_s = granted
        regions = {}
        for region, interface, address in self.endpoints(given["username"], url):
            regions.setdefault(region, {"region": region})[f"{interface}URL"] = address
        catalog = [{"type": "object-store", "name": "swift", "endpoints": list(regions.values())}] if regions else []
        self.answer(200, {"access": {"token": {"id": token, "expires": at(life_s)}, "serviceCatalog": catalog}})

    def log_in(self, user, password, project):
        """Return what tempauth grants: a token, the store's URL, and the token's life in seconds."""
        if user == "slow":
            time.sleep(3)
        if user == "gone":
            return self.refuse(503, "Service Unavailable", "The database is away.")
        if user == "odd":
            return self.answer(200, None)
        name = "tester" if user in FAULTY else user
        headers = {"X-Auth-User": f"{project}:{name}", "X-Auth-Key": password}
        try:
            with urllib.request.urlopen(
                urllib.request.Request(self.tempauth, headers=headers), timeout=ANSWER_S
            ) as answer:
                found = answer.headers
        except urllib.error.HTTPError:
            return self.refuse(401, "Unauthorized", "The request you have made requires authentication.")
        with self.lock:
            type(self).logins += 1
        life_s = 3 if user == "hasty" else int(found["X-Auth-Token-Expires"])
        return "invalid-token" if user == "invalid" else found["X-Auth-Token"], found["X-Storage-Url"], life_s

    @staticmethod
    def endpoints(user, url):
        """Return region, interface and URL of each endpoint."""
        for region in () if user == "nocatalog" else ("RegionOne", "RegionTwo"):
            for interface in ("public", "internal", "admin"):
                yield region, interface, NOWHERE if (region, interface) == ("RegionTwo", "internal") else url

    def refuse(self, status, title, message):
        self.answer(status, {"error": {"code": status, "title": title, "message": message}})

    def answer(self, status, value, headers=()):
        body = b"<html>not JSON" if value is None else json.dumps(value).encode()
        self.send_response(status)
        for name, text in {"Content-Type": "application/json", "Content-Length": len(body), **dict(headers)}.items():
            self.send_header(name, str(text))
        self.end_headers()
        self.wfile.write(body)


def at(seconds):
    """Return a time from now, as Keystone writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(time.time() + seconds))


def main(port, tempauth):
    Keystone.tempauth = tempauth
    server = ThreadingHTTPServer(("127.0.0.1", int(port)), Keystone)
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
