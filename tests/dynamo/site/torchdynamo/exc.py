"""Errors that tests expect."""

try:
    from torch._dynamo.exc import BackendCompilerFailed, ResetRequired, Unsupported
except ImportError:

    class Unsupported(RuntimeError):
        pass

    class BackendCompilerFailed(RuntimeError):
        pass

    class ResetRequired(RuntimeError):
        pass


class InternalTorchDynamoError(RuntimeError):
    pass
