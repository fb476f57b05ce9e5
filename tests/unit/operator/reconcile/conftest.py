from __future__ import annotations

import sys
from pathlib import Path

# Test folders are no packages; the fake cluster beside this file is shared by its tests.
sys.path.insert(0, str(Path(__file__).parent))
