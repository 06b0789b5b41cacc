"""Caught: torn. Scenario: killed in the middle of a file.

The entry is published in one step, and before the file that it names.
"""


def publish(lines, batch_id, files):
    files.write(f"draft-{batch_id}", [f"batch-{batch_id}"])
    files.rename(f"draft-{batch_id}", f"manifest/{batch_id}")
    files.write(f"batch-{batch_id}", lines)
