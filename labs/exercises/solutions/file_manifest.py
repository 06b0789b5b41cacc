"""The entry in the manifest is the commit: it gets its name in one step, when everything before it is whole.

1. Look whether the entry is there. Then the batch is published, whatever its repetition has computed: leave it alone.
2. Write the rows. No entry names the file yet, so half of it is nobody's; a repetition writes it anew.
3. Write the entry under a name that is not in the manifest, and rename it: now, and not a moment earlier, the batch
   exists, with all its rows.

With two drivers at the same time each attempt needs a file of its own, and a last step that fails where an entry is
there already: on a local disk a hard link, on an object store a conditional put.
"""


def publish(lines, batch_id, files):
    entry = f"manifest/{batch_id}"
    if files.exists(entry):
        return
    name = f"batch-{batch_id}.jsonl"
    files.write(name, lines)
    files.write(f"draft-{batch_id}", [name])
    files.rename(f"draft-{batch_id}", entry)
