"""`python -m deepopsctl.node_programs.suites.gpu_check`."""

import sys

from deepopsctl.node_programs.suites.gpu_check.cli import main

sys.exit(main())
