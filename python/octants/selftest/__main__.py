"""`python -m octants.selftest`."""

import sys

from octants.selftest import main

sys.exit(main())
