"""A cell that ends in an exception takes the queries with it that it started, and no others."""

from __future__ import annotations

import pytest
from IPython.core.interactiveshell import InteractiveShell

from labs.desk.cells import StoppedWithItsCell

START = "start('{}')\n"


@pytest.fixture
def shell(spark, tmp_path):
    """A shell whose cells are looked after; `start(name)` starts a query, `restored` counts."""
    restored: list[str] = []
    shell = InteractiveShell()

    def start(name):
        rows = spark.readStream.format("rate").load()
        query = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / name))
        return query.queryName(name).start()

    shell.push({"start": start, "restored": restored})
    cells = StoppedWithItsCell(lambda: spark, lambda: lambda: restored.append("restored"))
    cells.watch(shell)
    yield shell
    cells.unwatch()
    for query in spark.streams.active:
        query.stop()


def active(spark) -> list[str]:
    return sorted(query.name for query in spark.streams.active)


@pytest.mark.long
def test_query_ends_with_the_cell_that_started_it_and_was_cut_short(spark, shell, capsys):
    shell.run_cell(START.format("background"))
    assert active(spark) == ["background"], "a cell that ended well may leave a query"
    for error in ("KeyboardInterrupt", "ZeroDivisionError"):
        shell.run_cell(START.format("own") + f"raise {error}")
        assert active(spark) == ["background"]
        assert "is stopped; the cell can be run again" in capsys.readouterr().out
    assert shell.user_ns["restored"] == ["restored"] * 2


@pytest.mark.long
def test_query_that_started_a_moment_after_its_cell_was_cut_short_ends_with_the_next(spark, shell):
    shell.run_cell("raise KeyboardInterrupt")
    shell.user_ns["start"]("late")  # as Spark does whose `start` was interrupted
    shell.run_cell("pass")
    assert active(spark) == []


@pytest.mark.long
def test_syntax_error_and_a_dead_session_do_no_harm(spark, shell, capsys):
    shell.run_cell("1 +")
    shell.run_cell("pass")
    StoppedWithItsCell(lambda: None, lambda: lambda: None).watch(None)
    assert "Error in callback" not in capsys.readouterr().out
