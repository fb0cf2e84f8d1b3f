"""Record what the program answers, and compare recordings: ``python tests/tools/recorder --help``."""

import argparse
import fnmatch
import sys
from pathlib import Path

TOOLS = Path(__file__).resolve().parent.parent


def main() -> int:
    """Run one of the commands, and return the exit status."""
    sys.path[:0] = [str(TOOLS), str(TOOLS.parent)]
    arguments = _parser().parse_args()
    status: int = arguments.run(arguments)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python tests/tools/recorder",
        description="Record what the program answers, and compare recordings.",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    record = commands.add_parser("record", help="record the answers for 360 documents")
    record.add_argument("folder", metavar="DIR", type=Path, help="where the recording is written")
    record.add_argument("--only", metavar="PATTERN", default="*", help="documents of these names: 'batch-*'")
    record.add_argument("--jobs", metavar="N", type=int, help="processes (cores)")
    record.add_argument(
        "--tree", metavar="DIR", type=Path, default=TOOLS.parents[1], help="checkout to record (this one)"
    )
    record.set_defaults(run=_record)
    store = commands.add_parser("store", help="record anew what the default tests compare with")
    store.set_defaults(run=_store)
    compare = commands.add_parser("compare", help="show what differs between two recordings; exit 1 if any")
    compare.add_argument("before", metavar="DIR", type=Path)
    compare.add_argument("after", metavar="DIR", type=Path)
    compare.add_argument("--tolerance", metavar="X", type=float, default=0.0, help="relative, of numbers (0)")
    compare.add_argument(
        "--ignore-words", action="store_true", help="compare values, and no texts of several words"
    )
    compare.add_argument("--all", action="store_true", help="show all differences, not three of each kind")
    compare.set_defaults(run=_compare)
    return parser


def _record(arguments: argparse.Namespace) -> int:
    tree = arguments.tree.resolve()
    sys.path.insert(0, str(tree))  # before the program is imported; processes that are spawned take it over
    from optimizer.parallel import core_count
    from recorder.recording import documents_of, record

    names = fnmatch.filter(documents_of(tree), arguments.only)
    if not names:
        print(f"--only: no document matches {arguments.only!r}", file=sys.stderr)
        return 2
    taken = record(tree, arguments.folder, names, arguments.jobs or core_count())
    print(f"{len(taken)} documents in {arguments.folder}", file=sys.stderr)
    return 0


def _store(_: argparse.Namespace) -> int:
    from recorder.brief import store

    for name in store():
        print(f"recorded anew: {name}")
    return 0


def _compare(arguments: argparse.Namespace) -> int:
    from recorder.comparing import Difference, Rules, differences, render
    from recorder.recording import SUFFIX, names_in, read_recorded
    from recorder.stopped import Judgement

    rules = Rules(arguments.tolerance, arguments.ignore_words)
    before, after = (names_in(folder) for folder in (arguments.before, arguments.after))
    alone = sorted({*before} ^ {*after})
    judgement, documents = Judgement(), {}
    found: list[Difference] = []
    for name in sorted({*before} & {*after}):
        one, other = (read_recorded(side / f"{name}{SUFFIX}") for side in (arguments.before, arguments.after))
        documents[name] = one["document"]
        found += differences(name, one, other, rules)
        judgement.add(name, one, other)
    for line in render(found, documents, None if arguments.all else 3):
        print(line)
    for line in judgement.lines():
        print(line)
    if alone:
        print(f"in one recording only: {', '.join(alone)}")
    differing = {item.document for item in found}
    print(f"{len(found)} differences in {len(differing)} of {len(documents)} documents")
    return 1 if found or alone or judgement.failed or not documents else 0


if __name__ == "__main__":
    sys.exit(main())
