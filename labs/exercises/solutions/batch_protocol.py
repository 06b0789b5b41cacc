"""Who may write, what is there already, and only then the batch, which is there as a whole or not at all.

1. The plan first: whoever repeats the batch finds in the checkpoint which records are in it, and takes the same ones.
2. An epoch before the marker is read. The epoch fences every older driver, so that from here on nobody else can move
   the marker. Read before, it may be out of date by the time that one writes.
3. The marker says whether the batch is published. If it is, only the note is missing: a crash came in between.
4. Rows and marker in one transaction. In two, a crash comes between them: rows without a marker are published again,
   and a marker without rows makes everyone believe in rows that are not there.
5. The note last: it says that the batch is done, so all of it must be there. What a crash before the note costs is one
   look at the marker.
"""


def batch():
    return ["plan", "fence", "read marker", "rows", "marker", "commit", "note"]
