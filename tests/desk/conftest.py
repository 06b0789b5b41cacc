"""What the tests of the desk share."""

from __future__ import annotations

import pytest

from labs.desk.progress import MANIFEST


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """An empty desk, which is the working directory."""
    (tmp_path / MANIFEST).write_text("{}")
    monkeypatch.chdir(tmp_path)
    return tmp_path
