"""Caught: lost. Scenario: killed in the middle of a file.

A file that is there, half of it too, counts as a batch that is published.
"""


def publish(lines, batch_id, files):
    if files.exists(f"batch-{batch_id}"):
        return
    files.write(f"batch-{batch_id}", lines)
    files.write(f"draft-{batch_id}", [f"batch-{batch_id}"])
    files.rename(f"draft-{batch_id}", f"manifest/{batch_id}")
