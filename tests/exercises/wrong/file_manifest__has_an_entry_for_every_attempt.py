"""Caught: doubled. Scenario: killed before it is noted.

Each attempt has a name of its own, as it should, and so does its entry, as it should not.
"""

import uuid


def publish(lines, batch_id, files):
    name = f"batch-{batch_id}-{uuid.uuid4().hex[:8]}"
    files.write(name, lines)
    files.write(f"draft-{name}", [name])
    files.rename(f"draft-{name}", f"manifest/{name}")
