"""The student's own sink goes on: what passed in lesson 07 is kept on the desk, and later lessons use it.

Guarantee: a file that is there is never overwritten. Where there is no desk, or no sink has passed, the lessons go on
with the reference solution, and say so.
"""

from __future__ import annotations

from labs.desk.notes import notes_of
from labs.exercises.checker.student_module import solution_of

EXERCISE = "exactly_once_sink"
FILE = "my_sink.py"


def keep_sink(text: str) -> None:
    """Write a sink that has passed to the desk, unless another one is there, and print what was done."""
    notes = notes_of()
    file = notes.path.with_name(FILE)
    if not notes.kept:
        return
    if not file.exists():
        file.write_text(text.rstrip("\n") + "\n", "utf-8")
        print(f"Kept as {FILE}: later lessons use it.")
    elif file.read_text("utf-8", errors="replace").strip() != text.strip():
        print(f"{FILE} on your desk is another one, and was not changed. Delete it to have this one kept.")


def my_sink() -> str:
    """Return the file of the student's sink, or of the reference solution where there is none, and print which."""
    notes = notes_of()
    file = notes.path.with_name(FILE)
    if notes.kept and file.is_file():
        print(f"{FILE} of your desk")
        return str(file)
    print("the reference solution of lesson 07")
    return str(solution_of(EXERCISE))
