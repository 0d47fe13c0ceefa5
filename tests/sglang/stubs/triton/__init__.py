"""Stand-in for triton: kernels can be defined, never launched."""

import inert

__version__ = "3.7.1"
inert.have_every_submodule(__name__)


class JITFunction(inert.Inert):
    """What `@triton.jit` makes of a kernel."""

    def __init__(self, fn):
        self.fn = fn
        self.src = ""
        self.__name__ = getattr(fn, "__name__", "kernel")
        self.__doc__ = fn.__doc__

    def __getitem__(self, grid):
        return self

    def __call__(self, *args, **kwargs):
        raise RuntimeError(f"kernel {self.__name__} was launched, but this triton only stands in for the real one")


class Config:
    """One set of tuning parameters, kept and never used."""

    def __init__(self, kwargs=None, **options):
        self.kwargs = kwargs or {}


def jit(fn=None, **options):
    """Define a kernel."""
    return JITFunction if fn is None else JITFunction(fn)


def autotune(*args, **options):
    """Tune nothing."""
    return lambda fn: fn


heuristics = autotune


def cdiv(a, b):
    """Divide, rounding up."""
    return -(a // -b)


def next_power_of_2(n):
    """Return the smallest power of two >= n."""
    return 1 << (n - 1).bit_length() if n > 0 else 1


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return inert.Inert()
