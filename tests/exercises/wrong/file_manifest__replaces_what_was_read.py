"""Caught: changed. Scenario: other rows.

Every step is atomic and repeatable: as long as a repetition computes the same rows.
"""


def publish(lines, batch_id, files):
    files.write(f"draft-{batch_id}", lines)
    files.rename(f"draft-{batch_id}", f"batch-{batch_id}")
    files.write(f"draft-{batch_id}", [f"batch-{batch_id}"])
    files.rename(f"draft-{batch_id}", f"manifest/{batch_id}")
