"""`python -m labs`: the command line."""

import atexit
import os
import sys

from labs.commands.main import INTERRUPTED, main

code = main()
if code == INTERRUPTED:
    # A batch may still be at work in its own thread, inside librdkafka: Python aborts if it tidies up around that.
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code)
sys.exit(code)
