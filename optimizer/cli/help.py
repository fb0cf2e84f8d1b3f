"""Layout of help: commands in groups, flags in groups, and two examples for each command."""

import argparse
import re
import textwrap
from collections.abc import Mapping

GROUPS: Mapping[str, tuple[str, ...]] = {
    "Plan": ("init", "check", "solve", "explain", "compare", "verify", "report", "plot", "web"),
    "What if": ("sweep", "horizon", "replay", "simulate", "candidates"),
    "Token times": ("estimate", "fit", "predict", "profiles", "catalogue", "prices"),
    "Run": ("serve", "loop", "manifests", "demo", "emulate", "drive", "work"),
    "One replica": ("analyze", "size"),
    "Files": ("convert", "schema", "samples", "generate", "completion"),
}
"""Commands by group, in the order of the main help."""
SOLVER = frozenset({
    "gap", "time_limit", "solver", "backend", "cluster", "requests", "seed", "replications", "jobs", "repair",
    "simulate", "checkpoint",
})  # fmt: skip
"""Names of flags that determine how a result is computed, not what is asked."""
OUTPUT = frozenset({
    "json", "csv", "wide", "table", "output", "format", "write_model", "proof", "timings", "require_complete",
    "require_reserves", "help", "brief", "title", "date",
})  # fmt: skip
"""Names of flags that determine what is written."""
EXAMPLES: Mapping[str, tuple[str, str]] = {
    "init": ("init fleet.yaml", "init fleet.yaml --model llama-3.1-8b --accelerator H100::3USD/h"),
    "check": ("check fleet.yaml", "check fleet.yaml --json"),
    "solve": ("solve sample:gpus", "solve sample:gpus --scale 2.5 --mixed"),
    "explain": ("explain sample:gpus", "explain sample:gpus --server chat-qwen3-32b"),
    "compare": ("compare sample:small", "compare before.yaml --with after.yaml"),
    "verify": ("verify plan.json fleet.yaml", "verify plan.json fleet.yaml --proof proof.json"),
    "report": ("report sample:gpus -o report.html", "report sample:gpus --markdown report.md"),
    "plot": ("plot plan sample:gpus -o plan.svg", "plot cost sample:gpus --server chat-qwen3-32b -o p.png"),
    "web": ("web", "web sample:gpus"),
    "sweep": ("sweep sample:gpus --vary load=1,1.5,2", "sweep sample:gpus --vary count:H100=0,16,32"),
    "horizon": ("horizon sample:gpus --factors 0.3,1,0.6", "horizon sample:gpus --trace hours.csv"),
    "replay": ("replay loads.csv sample:small", "replay loads.csv sample:small --each"),
    "simulate": ("simulate sample:gpus", "simulate sample:gpus --requests 100000 --seed 2"),
    "candidates": ("candidates sample:gpus", "candidates sample:gpus --table rejected"),
    "estimate": (
        "estimate llama-3.1-8b H100",
        "estimate llama-3.1-70b H100 --tp 4 --weights fp8",
    ),
    "fit": ("fit report.json", "fit runs.csv --model m --acc H100 -o m.json"),
    "predict": ("predict profile.json runs.csv", "predict profile.json points.csv --csv"),
    "profiles": ("profiles --help", "profiles add --help"),
    "catalogue": ("catalogue", "catalogue H100"),
    "prices": ("prices prices.csv", "prices prices.csv --region eu-west-1 --spot"),
    "serve": ("serve", "serve --port 8080"),
    "loop": ("loop loop.yaml --once --dry-run", "loop loop.yaml --state state.json"),
    "manifests": ("manifests plan.json", "manifests plan.json --deployments --system fleet.yaml"),
    "demo": ("demo loop", "demo loop --seconds 60 -o loop.svg"),
    "emulate": ("emulate sample:small", "emulate sample:small --port 9000 --speed 10"),
    "drive": ("drive sample:small http://127.0.0.1:9000", "drive sample:small http://127.0.0.1:9000 --json"),
    "work": ("work http://127.0.0.1:9000", "work http://127.0.0.1:9000 --once"),
    "analyze": (
        "analyze --model llama-3.1-8b --accelerator H100 --rate 2/s",
        "analyze fleet.yaml",
    ),
    "size": (
        "size --model llama-3.1-8b --accelerator H100 --target-itl 30ms",
        "size --model llama-3.1-8b --accelerator H100 --target-ttft 500ms --percentile 95",
    ),
    "convert": ("convert sample:small -o small.yaml", "convert fleet -o fleet.json"),
    "schema": ("schema", "schema > schema.json"),
    "samples": ("samples", "samples my-samples"),
    "generate": (
        "generate --servers 100 --accelerators 20 --types 5",
        "generate --servers 9 --accelerators 6 --types 3 --seed 2 -o fleet.json",
    ),
    "completion": ("completion bash", "completion zsh"),
}  # fmt: skip
"""Two examples for each command, without the name of the program."""


class HelpFormatter(argparse.HelpFormatter):
    """Wraps sentences, and keeps indented lines as lines, with a hanging indent."""

    def add_argument(self, action: argparse.Action) -> None:
        """Add an argument, except the commands, which `commands_text` lists in groups."""
        if action.metavar != "COMMAND":
            super().add_argument(action)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines = []
        for line in text.splitlines():
            hanging = " " * len(found[0]) if (found := re.match(r"\s+\S+\s{2,}", line)) else "    "
            lines.append(
                textwrap.fill(line, width, subsequent_indent=hanging if line.startswith(" ") else "")
            )
        return "\n".join(indent + line for line in "\n".join(lines).split("\n"))


def commands_text(summaries: Mapping[str, str]) -> str:
    """Return the list of commands with their summaries, in groups."""
    known = {name for names in GROUPS.values() for name in names}
    groups = {**GROUPS, "Others": tuple(name for name in summaries if name not in known)}
    lines = []
    for title, names in groups.items():
        mine = [name for name in names if name in summaries]
        lines += [f"\n{title}:", *(f"  {name:<12}{summaries[name]}" for name in mine)] if mine else []
    return "\n".join(lines)


def with_examples(name: str, description: str) -> str:
    """Return the description of a command, followed by its examples."""
    examples = [f"  inferplan {words}" for words in EXAMPLES.get(name, ())]
    return "\n".join([description, *(["", "examples:", *examples] if examples else [])])


def group_flags(parser: argparse.ArgumentParser) -> None:
    """Show the flags of a command in the groups Scenario, Solver and Output, if it reads a system."""
    if not any(action.dest == "path" for action in parser._actions):  # noqa: SLF001  argparse has no other name
        return
    options = parser._optionals  # noqa: SLF001
    titles = {"solver": SOLVER, "output": OUTPUT}
    groups = {title: parser.add_argument_group(title) for title in ("scenario", *titles)}
    for action in options._group_actions:  # noqa: SLF001
        title = next((title for title, names in titles.items() if action.dest in names), "scenario")
        groups[title]._group_actions.append(action)  # noqa: SLF001
    options._group_actions.clear()  # noqa: SLF001
