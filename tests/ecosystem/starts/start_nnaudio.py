"""Spectrograms as layers."""

from made import data, show
from nnAudio import features

wave = data(1, 2048)
show("stft", features.STFT(n_fft=256, hop_length=128, output_format="Magnitude", verbose=False)(wave))
show("mel", features.MelSpectrogram(sr=8000, n_fft=256, n_mels=20, hop_length=128, verbose=False)(wave))
show("mfcc", features.MFCC(sr=8000, n_mfcc=8, n_fft=256, n_mels=20, hop_length=128, verbose=False)(wave))
show("cqt", features.CQT(sr=8000, fmin=220, n_bins=24, verbose=False)(wave))
