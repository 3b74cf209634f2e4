"""``python -m julia1.cli``: the command where its script is not on the path."""

import sys

from julia1.cli.app import main

sys.exit(main())
