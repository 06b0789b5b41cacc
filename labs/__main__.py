"""`python -m labs`: the command line."""

import atexit
import os
import signal
import sys

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not ignored, as in a background job of a script
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until the command runs: an import would end in a traceback

# Python looks for modules in the current directory first; a json.py that lies there is not meant for the lab.
_root = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
if not sys.flags.safe_path and sys.path[0] and os.path.realpath(sys.path[0]) != _root:
    del sys.path[0]

from labs.commands.main import INTERRUPTED, main  # noqa: E402

code = main()
if code == INTERRUPTED:
    # A batch may still be at work in its own thread, inside librdkafka: Python aborts if it tidies up around that.
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code)
sys.exit(code)
