"""Web page for analysts: open a fleet, change it, and see the plan and its reasons.

Needs the extra ``web``.
"""
