"""A live page whose process ends: the run goes on, and the reason given is the same whatever was still unread."""

import socket
from unittest.mock import MagicMock

import gevent
import pytest
from deadlines import ANSWER_S

from bench_features.live.live_page import LivePage


@pytest.mark.parametrize("unread", [0, 1])
def test_the_end_of_the_process_is_told_as_such_whether_it_had_read_all_or_not(unread):
    """A socket whose peer ended with a message unread answers with "connection reset": that is no other reason."""
    page = LivePage(socket.create_server(("127.0.0.1", 0)), control=False)
    page._run = run = MagicMock()
    page._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    page._socket.settimeout(0.0)
    for _ in range(unread):
        page._socket.send(b"a message")
    theirs.close()
    gevent.spawn(page._serve).get(timeout=ANSWER_S)
    page.close()
    run.notify.assert_called_once_with("the live page is gone (its process ended); the run goes on without it")
