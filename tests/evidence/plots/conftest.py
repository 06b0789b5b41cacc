"""Plots are drawn without a window, and each test begins and ends with no figure open."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib as mpl
import pytest
from matplotlib import pyplot as plt


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    plt.close("all")  # what other tests of this process have left
    with mpl.rc_context({"backend": "agg"}):
        yield
    plt.close("all")
