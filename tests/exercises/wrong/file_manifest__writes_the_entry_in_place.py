"""Caught: torn. Scenario: killed in the middle of a file.

The entry has its name before it is whole.
"""


def publish(lines, batch_id, files):
    if files.exists(f"manifest/{batch_id}"):
        return
    files.write(f"batch-{batch_id}", lines)
    files.write(f"manifest/{batch_id}", [f"batch-{batch_id}"])
