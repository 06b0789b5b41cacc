"""`python -m labs`: the command line."""

import sys

from labs.commands import main

sys.exit(main())
