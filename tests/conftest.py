"""What all programs that tests start have in common: Python keeps what it compiled of our sources beside the cache.

Tests start hundreds of them, and where the environment says that Python shall keep nothing, each would spend half a
second of processor time on compiling the same sources again.
"""

import os
from pathlib import Path

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.setdefault("PYTHONPYCACHEPREFIX", str(Path(__file__).parent.parent / ".pytest_cache" / "compiled"))
