"""Context managers that are decorators too, under the names of PyTorch's inner module."""

from .._modes import _Decorator


class _DecoratorContextManager(_Decorator):
    """A base for context managers that decorate functions; each call runs in a ``clone`` of the manager."""

    def __enter__(self) -> None:
        raise NotImplementedError

    def __exit__(self, exc_type: object, exc_value: object, traceback: object) -> None:
        raise NotImplementedError

    def clone(self) -> "_DecoratorContextManager":
        """The manager for one call; a class whose ``__init__`` has parameters overrides it."""
        return self.__class__()

    def _again(self) -> "_DecoratorContextManager":
        return self.clone()


class _NoParamDecoratorContextManager(_DecoratorContextManager):
    """The same for classes without parameters: ``@manager`` decorates as ``@manager()`` does."""

    def __new__(cls, orig_func: object = None) -> object:
        self = super().__new__(cls)
        return self if orig_func is None else self(orig_func)
