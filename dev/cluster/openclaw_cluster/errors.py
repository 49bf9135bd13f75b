"""What can go wrong, in one class: a sentence for the person at the terminal, never a traceback."""


class ClusterError(Exception):
    """The cluster cannot be brought up, used or taken down; the text says why and what to do."""
