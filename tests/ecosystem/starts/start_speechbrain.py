"""Features, layers and losses of speech."""

import torch
from made import data, fill, show, whole
from speechbrain.lobes.features import MFCC, Fbank
from speechbrain.lobes.models.ECAPA_TDNN import ECAPA_TDNN
from speechbrain.nnet.losses import ctc_loss, nll_loss
from speechbrain.nnet.RNN import LSTM

show("filters", Fbank()(data(2, 3200)))
show("cepstra", MFCC()(data(2, 3200)))
lengths = torch.ones(2)
logits = data(2, 9, 5).log_softmax(-1)
show("ctc", ctc_loss(logits, whole(2, 3, below=4) + 1, lengths, lengths, blank_index=0))
show("nll", nll_loss(logits, whole(2, 9, below=5)))
model = fill(ECAPA_TDNN(8, channels=[8] * 5, attention_channels=4, lin_neurons=6)).eval()
show("speaker", model(data(2, 12, 8)))
show("recurrent", fill(LSTM(hidden_size=4, input_size=8))(data(2, 12, 8))[0])
