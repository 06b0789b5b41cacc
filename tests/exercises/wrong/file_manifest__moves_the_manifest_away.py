"""Caught: lost. Scenario: killed before a rename.

Between its two renames there is no manifest, and a reader finds no batch at all.
"""


def publish(lines, batch_id, files):
    name = f"batch-{batch_id}.jsonl"
    entries = files.read("manifest/all") if files.exists("manifest/all") else []
    if name in entries:
        return
    files.write(name, lines)
    files.write("draft", [*entries, name])
    if files.exists("manifest/all"):
        files.rename("manifest/all", "old")
    files.rename("draft", "manifest/all")
