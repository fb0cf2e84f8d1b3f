"""Fourth example: plan within the existing cards, before and after a random load change.

As one command: inferplan compare specs/large --limited --random-load 7
"""

import sys
from pathlib import Path

import numpy as np

from optimizer import compare, load_system, vary_loads
from optimizer.render.comparison_sections import comparison_sections
from optimizer.render.terminal import show

system = load_system(Path(__file__).parent.parent / "specs" / "large").with_options(unlimited=False)
changed = vary_loads(system, np.random.default_rng(7))
show(comparison_sections(compare(system, changed, transition=True)), sys.stdout)
