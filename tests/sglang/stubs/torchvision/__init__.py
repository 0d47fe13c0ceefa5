"""Stand-in for torchvision: enough for imports at module level."""

import inert

__version__ = "0.0.0"
inert.have_every_submodule(__name__)


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return inert.Inert()
