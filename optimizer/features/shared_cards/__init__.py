"""Servers that share cards: whole, in slices, side by side or in turns."""
