"""Puts the checkout on the path: `training` is a folder of commands, not an installed package."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
