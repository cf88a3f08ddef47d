"""Transforms of sounds."""

import torchaudio
from made import data, show

wave = data(1, 2000)
show("spectrogram", torchaudio.transforms.Spectrogram(n_fft=128)(wave))
show("mel", torchaudio.transforms.MelSpectrogram(sample_rate=8000, n_fft=256, n_mels=20)(wave))
show("resampled", torchaudio.transforms.Resample(8000, 6000)(wave))
show("low", torchaudio.functional.lowpass_biquad(wave, 8000, 1000.0))
