"""``python -m tests.bench NAME``: run one area's benchmark, or list them."""

import importlib
import sys
from pathlib import Path


def main() -> int:
    """The benchmark's exit code."""
    areas = sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py"))
    if len(sys.argv) < 2 or sys.argv[1] not in areas:
        print(f"usage: make bench NAME={{{'|'.join(areas)}}}", file=sys.stderr)
        return 2
    module = importlib.import_module(f"tests.bench.{sys.argv.pop(1)}")
    code: int | None = module.main()
    return code or 0


if __name__ == "__main__":
    sys.exit(main())
