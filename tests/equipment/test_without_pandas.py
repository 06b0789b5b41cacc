"""A driver starts without pandas, which PySpark would import to look for numpy; and pandas is there all the same."""

import importlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from labs.equipment.spark import Hidden

ROOT = Path(__file__).resolve().parents[2]

DRIVER = """
import sys
from pyspark.sql import functions as F
from labs.equipment.spark import spark_session
spark = spark_session()
rows = spark.range(3).select((F.col("id") + F.lit(1)).alias("n")).collect()
imported = "pandas" in sys.modules
import numpy, pandas
array = spark.range(1).select(F.lit(numpy.int32(7)).alias("n"), F.lit(numpy.array([1, 2])).alias("many")).collect()
print(imported, [row.n for row in rows], array[0].n, array[0].many, pandas.Series([1, 2]).sum())
"""


@pytest.mark.long
def test_a_driver_starts_without_pandas_and_converts_what_numpy_has():
    ran = subprocess.run([sys.executable, "-c", DRIVER], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "False [1, 2, 3] 7 [1, 2] 3"


def test_it_is_hidden_from_one_thread_only(monkeypatch):
    hidden = Hidden("graphlib")
    monkeypatch.delitem(sys.modules, "graphlib", raising=False)
    monkeypatch.setattr(sys, "meta_path", [hidden, *sys.meta_path])
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("graphlib")
    with ThreadPoolExecutor(1) as another:
        assert another.submit(importlib.import_module, "graphlib").result().TopologicalSorter
