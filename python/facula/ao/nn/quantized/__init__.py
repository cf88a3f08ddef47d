"""Operations of models that can be quantised."""

from .modules import FloatFunctional as FloatFunctional
