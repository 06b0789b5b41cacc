"""The student's desk: a folder with the student's own copy of lessons and exercises, without outputs.

Guarantee: what a student changed is never overwritten. A new version of a lesson replaces the student's copy if the
student did not change the copy. Otherwise it is written beside the copy, as `NAME.fresh.ipynb`, and so it is if
something else has the lesson's name: a folder, a broken link, a file that cannot be read. Limitations: two runs at the
same time on one desk may conflict.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labs.desk.progress import MANIFEST
from labs.exercises.checker.check import EXERCISES
from labs.exercises.checker.student_module import NoSource, read_source

ROOT = Path(__file__).resolve().parents[2]
LESSONS = ROOT / "notebooks"
DESK = ROOT / "my-lab"

_LINK = re.compile(r"\]\((\.\.?/[^)\s]*)\)")


class DeskError(ValueError):
    """The desk cannot be made, or a lesson cannot be reset."""


@dataclass
class Laid:
    """What `lay_out` did: the names of files on the desk, by what happened to them."""

    new: list[str] = field(default_factory=list)
    renewed: list[str] = field(default_factory=list)
    beside: list[str] = field(default_factory=list)  # new versions beside what a student changed
    same: list[str] = field(default_factory=list)  # to be reset, but equal to the course's
    kept: list[str] = field(default_factory=list)  # a student's, renamed by a reset
    gone: list[str] = field(default_factory=list)  # no longer in the course; left as they are


def lay_out(desk: Path = DESK, reset: str | None = None, lessons: Path = LESSONS) -> Laid:
    """Make the desk, or bring it up to date; with `reset`, replace one lesson (a number or name) by the course's.

    Raises DeskError.
    """
    sources = {str(path.relative_to(lessons)): path for path in _notebooks(lessons)}
    if not sources:
        raise DeskError(f"there are no lessons in {lessons}")
    laid, manifest = Laid(), _manifest(desk)
    again = None if reset is None else _chosen(reset, sources)
    try:
        for name, source in sources.items():
            _lay(name, _stripped(source, desk / name, lessons), desk, again, manifest, laid)
        laid.gone = sorted(name for name in manifest if name not in sources and (desk / name).exists())
        (desk / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")
    except OSError as error:
        raise DeskError(
            f"{error.filename or desk} cannot be written: {(error.strerror or str(error)).lower()}"
        ) from error
    return laid


def _lay(name: str, fresh: bytes, desk: Path, again: str | None, manifest: dict[str, str], laid: Laid) -> None:
    """Write one lesson if it is new, and note in `manifest` and `laid` what was done. Raises OSError."""
    target, was = desk / name, manifest.get(name)
    there, untouched = os.path.lexists(target), was is not None and was == _sum_of(target)
    if not there:
        laid.new.append(name)
    elif name == again and untouched and was == _sum(fresh):
        laid.same.append(name)
        return
    elif name == again and not untouched:
        laid.kept.append(str(_move_aside(target).relative_to(desk)))
    elif was == _sum(fresh) and name != again:
        return
    elif untouched:
        laid.renewed.append(name)
    else:
        target = _beside(target, was)
        laid.beside.append(str(target.relative_to(desk)))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(fresh)
    manifest[name] = _sum(fresh)


def solution_on(desk: Path, exercise: str, lessons: Path = LESSONS) -> Path | None:
    """Return the notebook on a desk in which a student has worked on an exercise, or None if there is none.

    An exercise has a notebook of its own, and a lesson may have the same cell. Of those whose cell the student changed,
    return the one that was saved last; if none was changed, the exercise's own.
    """
    if not (desk / MANIFEST).exists() or exercise not in EXERCISES:
        return None
    asks = f'check("{exercise}", In'
    notebooks = _notebooks(lessons)
    own = [path for path in notebooks if path.stem.partition("_")[2] == exercise]
    others = [path for path in notebooks if path not in own and asks in path.read_text("utf-8").replace("\\", "")]
    names = [name for path in (*own, *others) if (desk / (name := path.relative_to(lessons))).is_file()]
    changed = [name for name in names if _cell(exercise, desk / name) not in (None, _cell(exercise, lessons / name))]
    found = max(changed, key=lambda name: (desk / name).stat().st_mtime) if changed else next(iter(names), None)
    return None if found is None else desk / found


def _cell(exercise: str, notebook: Path) -> str | None:
    """Return the code for an exercise in a notebook; None if there is none."""
    try:
        return read_source(exercise, notebook).text
    except NoSource:
        return None


def _notebooks(lessons: Path) -> list[Path]:
    found = (path for path in lessons.rglob("*.ipynb") if ".ipynb_checkpoints" not in path.parts)
    return sorted(path for path in found if path.is_file())


def _manifest(desk: Path) -> dict[str, str]:
    """Return the checksum of each lesson as it was written to the desk. Raises DeskError if the folder is no desk."""
    if os.path.lexists(desk) and not desk.is_dir():
        what = "a broken link" if desk.is_symlink() and not desk.exists() else "a file"
        raise DeskError(f"{desk} is {what}; name a folder for the desk")
    try:
        if not (desk / MANIFEST).exists():
            if desk.is_dir() and any(desk.iterdir()):
                raise DeskError(
                    f"{desk} is no desk and not empty: nothing was written; name an empty folder, or a new one"
                )
            desk.mkdir(parents=True, exist_ok=True)
            return {}
        text = (desk / MANIFEST).read_bytes()
    except OSError as error:
        raise DeskError(f"{error.filename or desk} cannot be used: {(error.strerror or str(error)).lower()}") from error
    try:
        manifest = json.loads(text)
    except (ValueError, RecursionError):
        manifest = None
    if not isinstance(manifest, dict):  # then every lesson counts as changed
        return {}
    return {name: sum_ for name, sum_ in manifest.items() if isinstance(sum_, str)}


def _chosen(reset: str, sources: dict[str, Path]) -> str:
    """Return the file of a lesson by its number, with or without a zero, or of any notebook by its name.

    Raises DeskError.
    """
    wanted = reset.removesuffix(".ipynb")
    if re.fullmatch("[0-9]{1,4}", wanted):
        found = [
            name for name in sources if "/" not in name and name.partition("_")[0].lstrip("0") == wanted.lstrip("0")
        ]
    else:
        found = [name for name in sources if wanted in _names_of(name)]
    if len(found) != 1:
        known = ", ".join(sorted(Path(name).stem for name in sources))
        raise DeskError(f"there is no lesson {reset[:60]!r}; there are: {known}")
    return found[0]


def _names_of(name: str) -> tuple[str, ...]:
    """Return the names of a notebook: exercises/3_one_transaction, 3_one_transaction, one_transaction."""
    stem = Path(name).stem
    return name.removesuffix(".ipynb"), stem, stem.partition("_")[2]


def _stripped(source: Path, target: Path, lessons: Path) -> bytes:
    """Return a lesson without outputs, with its relative links changed so that they work from the desk."""
    notebook: dict[str, Any] = json.loads(source.read_text())

    def moved(link: re.Match[str]) -> str:
        path, mark, anchor = link[1].partition("#")
        there = (source.parent / path).resolve()
        if there.is_relative_to(lessons) or not there.exists():
            return link[0]
        return f"]({Path(os.path.relpath(there, target.parent)).as_posix()}{mark}{anchor})"

    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
        else:
            cell["source"] = _LINK.sub(moved, "".join(cell["source"])).splitlines(keepends=True)
    return (json.dumps(notebook, indent=1, ensure_ascii=False) + "\n").encode()


def _beside(target: Path, was: str | None) -> Path:
    """Return a path for a fresh lesson beside the student's. A fresh one that the student changed keeps its path."""
    beside, number = target.with_suffix(".fresh.ipynb"), 1
    while os.path.lexists(beside) and _sum_of(beside) != was:
        number += 1
        beside = target.with_suffix(f".fresh-{number}.ipynb")
    return beside


def _move_aside(target: Path) -> Path:
    """Rename what is there to a free name, and return that."""
    number = 1
    while os.path.lexists(aside := target.with_suffix(f".mine-{number}.ipynb")):
        number += 1
    target.rename(aside)
    return aside


def _sum_of(path: Path) -> str | None:
    """Return the checksum of a file; None if it is no file or cannot be read."""
    try:
        return _sum(path.read_bytes()) if path.is_file() and not path.is_symlink() else None
    except OSError:
        return None


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
