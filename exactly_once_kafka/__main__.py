"""`python -m exactly_once_kafka`: look at the marker of a sink, or set it."""

import sys

from exactly_once_kafka.command import main

sys.exit(main())
