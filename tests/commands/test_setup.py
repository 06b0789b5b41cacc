"""`python -m labs setup`: how it sets up JupyterLab."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

from labs.commands.setup import WITHOUT_NEWS, compile_packages, keep_news_out


def test_jupyters_news_are_off_and_other_settings_stay(tmp_path):
    settings = tmp_path / "share/jupyter/lab/settings/overrides.json"
    keep_news_out(tmp_path)
    assert json.loads(settings.read_text()) == WITHOUT_NEWS
    settings.write_text('{"theme": {"dark": true}}')
    keep_news_out(tmp_path)
    assert json.loads(settings.read_text()) == {"theme": {"dark": True}, **WITHOUT_NEWS}


def test_the_bytecode_of_packages_is_kept_and_a_module_that_cannot_be_compiled_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    good, template = tmp_path / "package/good.py", tmp_path / "package/template.py"
    good.parent.mkdir()
    good.write_text("answer = 42")
    template.write_text("{{ this is no Python }}")
    for _ in range(2):
        compile_packages(tmp_path)
    assert Path(importlib.util.cache_from_source(str(good))).exists()
    assert not Path(importlib.util.cache_from_source(str(template))).exists()
