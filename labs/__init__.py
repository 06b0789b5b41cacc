"""The exactly-once lab: the equipment that the lessons import."""
