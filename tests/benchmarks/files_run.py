"""Count the library files that a plan runs: ``python tests/benchmarks/files_run.py [SAMPLE] [--names]``.

A file counts if one of its functions is called. Imports are done before, by planning once. The fewer files a
plan without features runs, the less of a feature stands in the way of everything else.
"""

import sys
from pathlib import Path
from types import FrameType

from optimizer import load_system, solve

ROOT = Path(__file__).resolve().parents[2]


def files_run(sample: Path) -> set[str]:
    """Return the files of the library that run from reading a sample to its verified plan."""
    found: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            found.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        solve(load_system(sample))
    finally:
        sys.setprofile(None)
    package = ROOT / "optimizer"
    return {str(Path(name).relative_to(ROOT)) for name in found if package in Path(name).parents}


def main() -> None:
    """Print the number of files, and their names with an option."""
    names = [argument for argument in sys.argv[1:] if argument != "--names"]
    sample = ROOT / "specs" / (names[0] if names else "small")
    solve(load_system(sample))
    found = files_run(sample)
    print(f"{len(found)} files of optimizer run for {sample.name}")
    if "--names" in sys.argv:
        print("\n".join(sorted(found)))


if __name__ == "__main__":
    main()
