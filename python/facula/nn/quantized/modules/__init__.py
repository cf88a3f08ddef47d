from ....ao.nn.quantized.modules import FloatFunctional as FloatFunctional
