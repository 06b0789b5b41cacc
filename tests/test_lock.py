"""requirements.lock fits requirements.txt, has a sum for everything, and fits every promised Python."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
CHOSEN, LOCK = ROOT.joinpath("requirements.txt").read_text(), ROOT.joinpath("requirements.lock").read_text()
PYTHONS = ("3.11.2", "3.12.0", "3.13.0", "3.14.0")


def requirements(text: str) -> list[Requirement]:
    """Return the requirements of a file, without the sums."""
    lines = (re.split(r"\s#|\\$|^#|^\s+--hash", line)[0].strip() for line in text.splitlines())
    return [Requirement(line) for line in lines if line]


def stale(chosen: str, lock: str) -> list[str]:
    """Return what was chosen and is not locked as it was chosen."""
    locked = {(canonicalize_name(each.name), str(each.specifier)) for each in requirements(lock)}
    return [
        str(each) for each in requirements(chosen) if (canonicalize_name(each.name), str(each.specifier)) not in locked
    ]


def without_sum(lock: str) -> list[str]:
    entries = re.split(r"\n(?=[^\s#])", lock)
    return [entry.split()[0] for entry in entries if not entry.startswith("#") and "--hash=sha256:" not in entry]


def test_lock_fits_what_was_chosen():
    assert stale(CHOSEN, LOCK) == [], "requirements.txt was edited and the lock was not: run make lock"
    assert stale(CHOSEN.replace("pyarrow==", "pyarrow==1"), LOCK)[0].startswith("pyarrow==1")
    assert stale(CHOSEN + "pytest-forever==1.0\n", LOCK) == ["pytest-forever==1.0"]


def test_everything_chosen_is_pinned_and_everything_locked_has_a_sum():
    assert [str(each) for each in requirements(CHOSEN) if not re.fullmatch(r"==[^,*]+", str(each.specifier))] == []
    assert without_sum(LOCK) == []
    assert without_sum(LOCK + "\nattic==1.0 ; python_version < '4'\nloft==2.0 \\\n    --hash=sha256:0") == [
        "attic==1.0"
    ]


def test_lock_names_no_place_to_fetch_from():
    assert not re.findall(r"://|--(?:extra-)?index|--find-links|--trusted", LOCK + CHOSEN)


@pytest.mark.parametrize("system", ["linux", "darwin"])
@pytest.mark.parametrize("python", PYTHONS)
def test_one_version_of_each_package_for_each_python(python, system):
    here = {"python_full_version": python, "python_version": python.rpartition(".")[0], "sys_platform": system}
    here |= {"os_name": "posix", "implementation_name": "cpython", "platform_python_implementation": "CPython"}
    names = [each.name for each in requirements(LOCK) if not each.marker or each.marker.evaluate(here)]
    assert len(names) > 100
    assert sorted(set(names)) == sorted(names)
    assert {canonicalize_name(each.name) for each in requirements(CHOSEN)} <= {
        canonicalize_name(name) for name in names
    }


def test_what_builds_the_lab_is_in_the_lock():
    build = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text())["build-system"]["requires"]
    assert stale("\n".join(build), LOCK) == []
