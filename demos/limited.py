"""Third example: plan within the existing cards.

As one command: inferplan solve specs/large --limited
"""

import sys
from pathlib import Path

from optimizer import load_system, solve
from optimizer.render.plan_sections import plan_sections
from optimizer.render.terminal import show

system = load_system(Path(__file__).parent.parent / "specs" / "large").with_options(unlimited=False)
show(plan_sections(solve(system), system), sys.stdout)
