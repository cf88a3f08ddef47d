from .functional_modules import FloatFunctional as FloatFunctional
