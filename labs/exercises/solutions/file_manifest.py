"""The entry in the manifest is the commit: it gets its name in one step, when everything before it is whole.

1. If the entry is there, the batch is published: do nothing, even if the repetition has computed other rows.
2. Write the rows. No entry names the file yet, so no reader reads it, even if the process is killed in the middle of
   it. A repetition writes the file again.
3. Write the entry under a name that is not in the manifest, and rename it. At this moment the batch becomes visible,
   with all its rows.

If two drivers may run at the same time, each attempt needs a file of its own. And the last step must fail if the
entry exists: use a hard link on a local disk, a conditional put on an object store.
"""


def publish(lines, batch_id, files):
    entry = f"manifest/{batch_id}"
    if files.exists(entry):
        return
    name = f"batch-{batch_id}.jsonl"
    files.write(name, lines)
    files.write(f"draft-{batch_id}", [name])
    files.rename(f"draft-{batch_id}", entry)
