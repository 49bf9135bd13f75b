"""A package, because only the end of one ends a fixture of its scope."""
