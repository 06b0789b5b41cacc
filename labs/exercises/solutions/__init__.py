"""One solution per exercise, with the reasoning. Try first: reading is not knowing."""
