"""Where the repository is, and what tests read of it."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
DATA = TESTS / "data"
FAKES = TESTS / "fakes"
