"""Errors that tests expect."""

from torch._dynamo import exc as _exc

BackendCompilerFailed, Unsupported = _exc.BackendCompilerFailed, _exc.Unsupported


class ResetRequired(RuntimeError):
    pass


class InternalTorchDynamoError(RuntimeError):
    pass
