"""Resampling, filters and bands of waves."""

import julius
from made import data, show

wave = data(2, 400).requires_grad_()
resampled = julius.resample_frac(wave, 4, 3)
show("resampled", resampled)
show("low", julius.lowpass_filter(wave, 0.1))
show("bands", julius.split_bands(wave, sample_rate=16000, n_bands=3))
show("convolved", julius.fft_conv1d(wave[:, None], data(1, 1, 40, seed=1)))
resampled.pow(2).sum().backward()
show("gradient", wave.grad)
