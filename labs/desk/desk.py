"""The student's desk: a folder of one's own with the lessons and exercises, their outputs removed.

Guarantee: what a student changed is never overwritten. A lesson that the course has changed meanwhile is laid down
anew if nobody touched it; otherwise the fresh one is laid beside it, as `NAME.fresh.ipynb`. Where it stops: two runs
at once on one desk are not told apart.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labs.desk.notes import MANIFEST

ROOT = Path(__file__).resolve().parents[2]
LESSONS = ROOT / "notebooks"
DESK = ROOT / "my-lab"

_LINK = re.compile(r"\]\((\.\.?/[^)\s]*)\)")


class DeskError(ValueError):
    """The desk cannot be made, or a lesson cannot be reset."""


@dataclass
class Laid:
    """What laying out did, by the names of the files on the desk."""

    new: list[str] = field(default_factory=list)
    renewed: list[str] = field(default_factory=list)
    beside: list[str] = field(default_factory=list)  # fresh ones beside what a student changed
    kept: list[str] = field(default_factory=list)  # a student's, moved aside by a reset
    gone: list[str] = field(default_factory=list)  # the course has them no longer; left as they are


def lay_out(desk: Path = DESK, reset: str | None = None, lessons: Path = LESSONS) -> Laid:
    """Make the desk, or bring it up to date; with `reset`, lay one lesson (its number or name) down anew.

    Raises DeskError.
    """
    sources = {str(path.relative_to(lessons)): path for path in _notebooks(lessons)}
    if not sources:
        raise DeskError(f"there are no lessons in {lessons}")
    laid, manifest = Laid(), _manifest(desk)
    again = _chosen(reset, sources) if reset else None
    for name, source in sources.items():
        fresh = _stripped(source, desk / name, lessons)
        target, was = desk / name, manifest.get(name)
        if not target.exists():
            laid.new.append(name)
        elif name == again and was != _sum(target.read_bytes()):
            laid.kept.append(_move_aside(target))
        elif was == _sum(fresh) and name != again:
            continue
        elif was == _sum(target.read_bytes()):
            laid.renewed.append(name)
        else:
            target = _beside(target, was)
            laid.beside.append(str(target.relative_to(desk)))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(fresh)
        manifest[name] = _sum(fresh)
    laid.gone = sorted(name for name in manifest if name not in sources and (desk / name).exists())
    (desk / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")
    return laid


def notebook_on(desk: Path, exercise: str) -> Path | None:
    """Return the notebook of an exercise on a desk, or None where there is none."""
    found = sorted((desk / "exercises").glob(f"[0-9]*_{exercise}.ipynb")) if exercise.isidentifier() else []
    return found[0] if (desk / MANIFEST).exists() and found else None


def _notebooks(lessons: Path) -> list[Path]:
    return sorted(path for path in lessons.rglob("*.ipynb") if ".ipynb_checkpoints" not in path.parts)


def _manifest(desk: Path) -> dict[str, str]:
    """Return the sum of each lesson as it was laid down. Raises DeskError where the folder is somebody else's."""
    if desk.exists() and not desk.is_dir():
        raise DeskError(f"{desk} is a file; name a folder for the desk")
    if not (desk / MANIFEST).exists():
        if desk.is_dir() and any(desk.iterdir()):
            raise DeskError(f"{desk} is no desk and not empty: nothing was written; name an empty folder, or a new one")
        desk.mkdir(parents=True, exist_ok=True)
        return {}
    try:
        manifest = json.loads((desk / MANIFEST).read_text())
    except ValueError:
        manifest = None
    if not isinstance(manifest, dict):  # then every lesson counts as changed by the student
        return {}
    return manifest


def _chosen(reset: str, sources: dict[str, Path]) -> str:
    stem = Path(reset).stem
    found = [name for name in sources if stem in (Path(name).stem, Path(name).stem.partition("_")[0], name)]
    lessons = [name for name in found if "/" not in name] or found
    if len(lessons) != 1:
        known = ", ".join(sorted(Path(name).stem for name in sources))
        raise DeskError(f"there is no lesson {reset!r}; there are: {known}")
    return lessons[0]


def _stripped(source: Path, target: Path, lessons: Path) -> bytes:
    """Return a lesson without outputs, its links leading from the desk where they led from the lessons."""
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
    """Return where a fresh lesson goes beside the student's: not over one that the student went on in."""
    beside, number = target.with_suffix(".fresh.ipynb"), 1
    while beside.exists() and _sum(beside.read_bytes()) != was:
        number += 1
        beside = target.with_suffix(f".fresh-{number}.ipynb")
    return beside


def _move_aside(target: Path) -> str:
    """Give what lies there a name that nothing has, and return it."""
    number = 1
    while (aside := target.with_suffix(f".mine-{number}.ipynb")).exists():
        number += 1
    target.rename(aside)
    return aside.name


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
