"""All exercises, in the order of the lessons."""

EXERCISES = (
    "commit_order",
    "idempotent_consumer",
    "one_transaction",
    "transactional_copy",
    "exactly_once_sink",
    "two_phase",
    "late_data",
    "batch_protocol",
    "sequence_numbers",
    "file_manifest",
    "barrier",
    "capstone",
)
