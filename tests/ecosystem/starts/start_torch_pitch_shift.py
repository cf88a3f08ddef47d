"""A shift of pitch."""

from fractions import Fraction

from made import data, show
from torch_pitch_shift import pitch_shift

show("shifted", pitch_shift(data(1, 1, 2048), Fraction(5, 4), 8000, n_fft=256))
show("semitones", pitch_shift(data(1, 1, 2048), -12, 8000, n_fft=256))
