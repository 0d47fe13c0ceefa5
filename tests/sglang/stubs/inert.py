"""Packages that can be imported and do nothing: stand-ins for GPU libraries on a machine without a GPU."""

import importlib.abc
import importlib.machinery
import sys
import types


class InertType(type):
    """Gives classes every attribute too, such as the members of an enumeration."""

    def __getattr__(cls, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return Inert()


class Inert(metaclass=InertType):
    """Swallows what module-level code does with a library: attributes, decorators, subscripts, unions, bases."""

    def __init__(self, *args, **kwargs):
        pass

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Inert()

    def __call__(self, *args, **kwargs):
        if len(args) == 1 and callable(args[0]) and not kwargs:
            return args[0]
        return lambda decorated=None, *rest, **options: decorated

    def __getitem__(self, key):
        return Inert()

    def __or__(self, other):
        return Inert()

    __ror__ = __or__

    def __mro_entries__(self, bases):
        return (Inert,)


class InertModule(types.ModuleType):
    """A module that has every attribute."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        made = InertType(name, (Inert,), {}) if name[:1].isupper() else Inert()
        setattr(self, name, made)
        return made


class Submodules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds every module below one package, inert."""

    def __init__(self, package):
        self.below = f"{package}."

    def find_spec(self, name, path=None, target=None):
        """Claim the package's own submodules."""
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.startswith(self.below) else None

    def create_module(self, spec):
        """Make it inert."""
        return InertModule(spec.name)

    def exec_module(self, module):
        """Run nothing."""


def have_every_submodule(package):
    """Let any `import package.x.y` succeed."""
    sys.meta_path.insert(0, Submodules(package))
