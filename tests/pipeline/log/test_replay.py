"""A source that cannot be written: a clear error after a while."""

from __future__ import annotations

from itertools import repeat

import pytest

from labs.pipeline.log import replay as module
from labs.pipeline.log.replay import SourceFailed, replay

NOWHERE = "127.0.0.1:1"
ACCESS = (1_767_225_600_000, "192.0.2.1")


def test_log_that_fills_the_queue_while_no_broker_answers_fails_with_one_line(monkeypatch):
    monkeypatch.setattr(module, "LONGEST_WAIT", 1)
    with pytest.raises(SourceFailed, match=r"^127.0.0.1:1 acknowledged no record of source for 1 s: is it running\?$"):
        replay(repeat(ACCESS, 10), NOWHERE, "source", queue_buffering_max_messages=5)
