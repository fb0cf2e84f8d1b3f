"""First example: plan with any number of cards.

As one command: inferplan solve specs/large --unlimited
"""

import sys
from pathlib import Path

from optimizer import load_system, solve
from optimizer.render.plan_sections import plan_sections
from optimizer.render.terminal import show

system = load_system(Path(__file__).parent.parent / "specs" / "large").with_options(unlimited=True)
show(plan_sections(solve(system), system), sys.stdout)
