"""Renderers for readers: terminal, pages, pictures; and the sections of every study."""
