"""`python -m labs setup`: how it sets up JupyterLab."""

from __future__ import annotations

import json

from labs.commands.setup import WITHOUT_NEWS, keep_news_out


def test_jupyters_news_are_off_and_other_settings_stay(tmp_path):
    settings = tmp_path / "share/jupyter/lab/settings/overrides.json"
    keep_news_out(tmp_path)
    assert json.loads(settings.read_text()) == WITHOUT_NEWS
    settings.write_text('{"theme": {"dark": true}}')
    keep_news_out(tmp_path)
    assert json.loads(settings.read_text()) == {"theme": {"dark": True}, **WITHOUT_NEWS}
