"""Caught: torn. Scenario: killed in the middle of a file.

The entry names two files, and the second one is written after the entry.
"""


def publish(lines, batch_id, files):
    if files.exists(f"manifest/{batch_id}"):
        return
    files.write(f"{batch_id}-a", lines[:2])
    files.write("draft", [f"{batch_id}-a", f"{batch_id}-b"])
    files.rename("draft", f"manifest/{batch_id}")
    files.write(f"{batch_id}-b", lines[2:])
