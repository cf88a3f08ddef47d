"""Changes of sounds, whose amounts are fixed here."""

from made import data, show
from torch_audiomentations import Compose, Gain, HighPassFilter, PeakNormalization, PolarityInversion, Shift

sound = data(2, 1, 1000)
changes = Compose(
    [
        Gain(min_gain_in_db=6.0, max_gain_in_db=6.0001, p=1.0, output_type="tensor"),
        PolarityInversion(p=1.0, output_type="tensor"),
        PeakNormalization(p=1.0, output_type="tensor"),
    ],
    output_type="tensor",
)
show("changed", changes(sound, sample_rate=8000))
show("shifted", Shift(0.1, 0.1001, p=1.0, output_type="tensor")(sound, sample_rate=8000))
high = HighPassFilter(500.0, 500.001, p=1.0, output_type="tensor")
show("filtered", high(sound, sample_rate=8000))
