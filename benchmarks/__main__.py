"""Run the benchmarks and print one JSON object each: `python -m benchmarks [NAME …] [--quick]`."""

import argparse
import importlib
import json
import time

NAMES = ("grants", "lbch", "imports", "turn", "sync", "hold", "active", "overload", "decoupled")
ASKED = ("instructions", "soak", "beyond")
"""Run only when named: slow, and the first needs valgrind."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which to run; all but {', '.join(ASKED)} by default")
    parser.add_argument("--quick", action="store_true", help="small sizes, only to see that they run")
    parser.add_argument("--live", action="store_true", help="with beyond alone: replay over HTTP, do not simulate")
    asked = parser.parse_args()
    if asked.live and asked.names != ["beyond"]:
        parser.error("--live goes with beyond alone")
    unknown = set(asked.names) - {*NAMES, *ASKED}
    if unknown:
        parser.error(f"unknown benchmark {', '.join(sorted(unknown))}; known: {', '.join(NAMES + ASKED)}")
    for name in asked.names or NAMES:
        began = time.perf_counter()
        module = importlib.import_module(f"benchmarks.{name}")
        figures = module.run(quick=asked.quick, **({"live": True} if asked.live else {}))
        print(json.dumps({"benchmark": name, **figures, "wall_s": round(time.perf_counter() - began, 1)}), flush=True)


if __name__ == "__main__":
    main()
