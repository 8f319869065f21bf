"""A reader of the live page without a browser: it logs in, reads the stream, and sends what it likes."""

import http.client
import json
import re
import socket
from urllib.parse import urlsplit

from deadlines import START_S


class Reader:
    """One reader; `url` is the printed address."""

    def __init__(self, url):
        parts = urlsplit(url)
        self.host, self.port = parts.hostname, parts.port
        self.token = parts.fragment.removeprefix("t=")
        self.own = {"Host": f"{self.host}:{self.port}", "Origin": f"http://{self.host}:{self.port}"}
        self.cookie = {}
        self._streams = []

    def ask(self, method, path, body=None, **headers):
        """Return status, headers and text of an answer."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=START_S)
        try:
            sent = {"Host": self.own["Host"], **self.cookie, **headers}
            if body is not None:
                sent |= {"Content-Type": "application/json"}
                body = json.dumps(body)
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read().decode()
        finally:
            connection.close()

    def log_in(self, token=None, **headers):
        """Exchange the token; return the status."""
        body = {"token": self.token if token is None else token}
        status, found, _ = self.ask("POST", "/session", body, **{"Origin": self.own["Origin"], **headers})
        if status == 204:
            self.cookie = {"Cookie": found["Set-Cookie"].partition(";")[0]}
        return status

    def change(self, path, body, secret, **headers):
        """Send what may change something; return status and text."""
        status, _, text = self.ask(
            "POST", path, body, Origin=self.own["Origin"], **{"X-Weighbridge": secret}, **headers
        )
        return status, text

    def look(self):
        """Open the stream; return its status and a generator of `(event, data)`."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=START_S)
        connection.request("GET", "/events", headers={"Host": self.own["Host"], **self.cookie})
        answer = connection.getresponse()
        self._streams.append((connection, answer))
        return answer.status, events_of(answer)

    def close(self):
        """Close the streams."""
        for connection, answer in self._streams:
            answer.close()
            connection.close()

    def raw(self):
        """Return a plain connection."""
        return socket.create_connection((self.host, self.port), timeout=START_S)


def events_of(answer):
    """Yield the events of a stream until it ends."""
    name = ""
    for line in answer:
        text = line.decode().rstrip("\n")
        if text.startswith("event: "):
            name = text.removeprefix("event: ")
        elif text.startswith("data: "):
            yield name, json.loads(text.removeprefix("data: "))


def address_in(text):
    """Return the address that a master printed, once."""
    (found,) = re.findall(r"^live page: (http://\S+/#t=[\w-]{22}) ", text, re.MULTILINE)
    return found
