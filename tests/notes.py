"""Notes on stderr that depend on what ran on this machine before."""


def besides_compiling(err: str) -> str:
    """Return what was said, without the note that a fresh installation compiles first."""
    lines = err.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("inferplan: compiling "))
