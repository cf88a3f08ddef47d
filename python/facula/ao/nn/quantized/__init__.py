"""Operations of models that may be quantised."""

from .modules import FloatFunctional as FloatFunctional
