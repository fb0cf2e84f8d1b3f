"""Replays past loads through planning and stabilisation, with and without rules."""
