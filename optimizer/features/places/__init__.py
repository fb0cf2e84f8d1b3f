"""Places of accelerators and servers."""
