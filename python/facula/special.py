"""Special functions. All are operators of the registry."""

from . import _C, _namespace

expit, gammaln, psi = _C.functions.sigmoid, _C.functions.lgamma, _C.functions.digamma
gammainc, gammaincc, multigammaln = _C.functions.igamma, _C.functions.igammac, _C.functions.mvlgamma
__getattr__ = _namespace.fill(globals(), _C.special)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._C.special import *  # noqa: F403
