"""A learned filter bank and its inverse."""

from asteroid_filterbanks import STFTFB, Decoder, Encoder, FreeFB, make_enc_dec
from asteroid_filterbanks.transforms import mag
from made import data, fill, show

wave = data(2, 1, 256)
encoder, decoder = make_enc_dec("stft", n_filters=32, kernel_size=32, stride=16)
spectrum = encoder(wave)
show("magnitude", mag(spectrum))
show("back", decoder(spectrum))
free = fill(Encoder(FreeFB(16, 16, stride=8)))
show("free", free(wave))
show("decoded", Decoder(STFTFB(16, 16, stride=8))(Encoder(STFTFB(16, 16, stride=8))(wave)))
