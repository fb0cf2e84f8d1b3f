"""Questions about plans, answered by solving again: what decides, what would change, what would repair."""
