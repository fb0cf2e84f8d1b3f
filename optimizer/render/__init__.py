"""Renderers: terminal, pages and pictures; and the sections of every study."""
