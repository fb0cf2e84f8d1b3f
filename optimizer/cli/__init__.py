"""The command line: each sub-command parses its arguments, calls one job and renders the result."""
