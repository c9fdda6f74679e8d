"""`python -m deepopsctl.gpucheck`."""

import sys

from deepopsctl.gpucheck.cli import main

sys.exit(main())
