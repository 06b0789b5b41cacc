"""`python -m labs`: the command line."""

import sys

from labs.commands.main import main

sys.exit(main())
