"""The exactly-once lab: its lessons, what they import, and the command `python -m labs`."""
