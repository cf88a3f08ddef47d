"""Tags: the forward algorithm and Viterbi of a BiLSTM-CRF, characters by convolution, an adaptive softmax, hidden states by EM."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

START_TAG, STOP_TAG = "<START>", "<STOP>"
rng = np.random.RandomState(6)


def argmax(vec):
    _, idx = torch.max(vec, 1)
    return idx.item()


def prepare_sequence(seq, to_ix):
    return torch.tensor([to_ix[w] for w in seq], dtype=torch.long)


def log_sum_exp(vec):
    max_score = vec[0, argmax(vec)]
    max_score_broadcast = max_score.view(1, -1).expand(1, vec.size()[1])
    return max_score + torch.log(torch.sum(torch.exp(vec - max_score_broadcast)))


class BiLSTM_CRF(nn.Module):
    def __init__(self, vocab_size, tag_to_ix, embedding_dim, hidden_dim, n_chars):
        super(BiLSTM_CRF, self).__init__()
        self.hidden_dim = hidden_dim
        self.tag_to_ix = tag_to_ix
        self.tagset_size = len(tag_to_ix)
        self.word_embeds = nn.Embedding(vocab_size, embedding_dim, max_norm=2.0)
        self.chars = nn.Embedding(n_chars, 4, padding_idx=0)
        self.char_conv = nn.Conv1d(4, 5, 3, padding=2)
        self.lstm = nn.LSTM(embedding_dim + 5, hidden_dim // 2, num_layers=1, bidirectional=True)
        self.hidden2tag = nn.Linear(hidden_dim, self.tagset_size)
        self.transitions = nn.Parameter(torch.zeros(self.tagset_size, self.tagset_size))
        self.transitions.data[tag_to_ix[START_TAG], :] = -10000
        self.transitions.data[:, tag_to_ix[STOP_TAG]] = -10000

    def _get_lstm_features(self, sentence, chars):
        embeds = self.word_embeds(sentence).view(len(sentence), 1, -1)
        spelled = self.char_conv(self.chars(chars).permute(0, 2, 1)).max(dim=2).values
        hidden = (torch.zeros(2, 1, self.hidden_dim // 2), torch.zeros(2, 1, self.hidden_dim // 2))
        lstm_out, _ = self.lstm(torch.cat([embeds, spelled.unsqueeze(1)], -1), hidden)
        return self.hidden2tag(lstm_out.view(len(sentence), self.hidden_dim))

    def _forward_alg(self, feats):
        forward_var = torch.full((1, self.tagset_size), -10000.0)
        forward_var[0][self.tag_to_ix[START_TAG]] = 0.0
        for feat in feats:
            alphas_t = []
            for next_tag in range(self.tagset_size):
                emit_score = feat[next_tag].view(1, -1).expand(1, self.tagset_size)
                trans_score = self.transitions[next_tag].view(1, -1)
                alphas_t.append(log_sum_exp(forward_var + trans_score + emit_score).view(1))
            forward_var = torch.cat(alphas_t).view(1, -1)
        return log_sum_exp(forward_var + self.transitions[self.tag_to_ix[STOP_TAG]])

    def _forward_at_once(self, feats):
        a = torch.full((self.tagset_size,), -10000.0).index_fill(
            0, torch.tensor([self.tag_to_ix[START_TAG]]), 0.0
        )
        for feat in feats:
            a = torch.logsumexp(a[None, :] + self.transitions, dim=1) + feat
        return (a + self.transitions[self.tag_to_ix[STOP_TAG]]).logsumexp(0)

    def _score_sentence(self, feats, tags):
        tags = torch.cat([torch.tensor([self.tag_to_ix[START_TAG]], dtype=torch.long), tags])
        score = self.transitions[tags[1:], tags[:-1]].sum() + feats.gather(1, tags[1:, None]).sum()
        return score + self.transitions[self.tag_to_ix[STOP_TAG], tags[-1]]

    def _viterbi_decode(self, feats):
        backpointers = []
        forward_var = torch.full((self.tagset_size,), -10000.0)
        forward_var[self.tag_to_ix[START_TAG]] = 0
        for feat in feats:
            best, at = (forward_var.unsqueeze(0) + self.transitions).max(1)
            forward_var = best + feat
            backpointers.append(at)
        terminal = forward_var + self.transitions[self.tag_to_ix[STOP_TAG]]
        best = terminal.argmax().item()
        path = [best]
        for at in reversed(backpointers):
            path.append(at[path[-1]].item())
        assert path.pop() == self.tag_to_ix[START_TAG]
        return terminal[best], path[::-1]

    def neg_log_likelihood(self, sentence, chars, tags):
        feats = self._get_lstm_features(sentence, chars)
        return self._forward_alg(feats) - self._score_sentence(feats, tags)

    def forward(self, sentence, chars):
        return self._viterbi_decode(self._get_lstm_features(sentence, chars))


training_data = [
    (
        "the wall street journal reported today that apple corporation made money".split(),
        "B I I I O O O B I O O".split(),
    ),
    ("georgia tech is a university in georgia".split(), "B I O O O O B".split()),
]
word_to_ix = {}
for sentence, tags in training_data:
    for word in sentence:
        word_to_ix.setdefault(word, len(word_to_ix))
tag_to_ix = {"B": 0, "I": 1, "O": 2, START_TAG: 3, STOP_TAG: 4}


def spelled(sentence):
    rows = [torch.tensor([ord(c) - 96 for c in w]) for w in sentence]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True)


model = BiLSTM_CRF(len(word_to_ix), tag_to_ix, 5, 4, 27)
for name, p in model.named_parameters():
    if name != "transitions":
        p.data.copy_(torch.from_numpy(rng.randn(*p.shape) * 0.4))
optimizer = optim.SGD(model.parameters(), lr=0.02, weight_decay=1e-4)
with torch.no_grad():
    sent = prepare_sequence(training_data[0][0], word_to_ix)
    feats = model._get_lstm_features(sent, spelled(training_data[0][0]))
    print(f"{model._forward_alg(feats).item():.4f} {model._forward_at_once(feats).item():.4f}")
    score, path = model(sent, spelled(training_data[0][0]))
    print(f"{score.item():.4f}", path)
for epoch in range(12):
    for sentence, tags in training_data:
        model.zero_grad()
        targets = torch.tensor([tag_to_ix[t] for t in tags], dtype=torch.long)
        loss = model.neg_log_likelihood(prepare_sequence(sentence, word_to_ix), spelled(sentence), targets)
        loss.backward()
        optimizer.step()
    if epoch < 4:
        print(f"epoch {epoch} loss {loss.item():.3f}")
print("falls", loss.item() < 5, f"longest {model.word_embeds.weight.norm(dim=1).max().item() <= 2.0001}")

# A vocabulary with few common words.
torch.manual_seed(0)
adaptive = nn.AdaptiveLogSoftmaxWithLoss(6, 20, cutoffs=[4, 10], div_value=2.0, head_bias=True)
for p in adaptive.parameters():
    p.data = torch.from_numpy(rng.randn(*p.shape).astype("f") * 0.5)
hidden = torch.from_numpy(rng.randn(7, 6).astype("f"))
words = torch.tensor([0, 3, 4, 9, 10, 19, 2])
out = adaptive(hidden, words)
full = adaptive.log_prob(hidden)
print([round(v, 4) for v in out.output.tolist()], f"{out.loss.item():.4f}")
print(
    torch.allclose(full.gather(1, words[:, None]).squeeze(1), out.output, atol=1e-5),
    f"{full.exp().sum(1).mean().item():.4f}",
    adaptive.predict(hidden).tolist(),
)
print(adaptive)
try:
    adaptive(hidden, words + 15)
except RuntimeError as error:
    print("refused:", str(error)[:60])
for loss in (
    nn.NLLLoss(),
    nn.MultiMarginLoss(p=2, margin=0.5),
    nn.MultiLabelSoftMarginLoss(),
    nn.PoissonNLLLoss(log_input=False),
):
    name = type(loss).__name__
    if name in ("NLLLoss", "MultiMarginLoss"):
        value = loss(full, words)
    else:
        value = loss(full.exp(), F.one_hot(words, 20).float())
    print(name, f"{value.item():.4f}")

# A hidden Markov model by expectation and maximisation, in logarithms.
A = torch.tensor([[0.8, 0.2], [0.3, 0.7]]).log()
B = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]]).log()
seen = torch.from_numpy(rng.randint(0, 3, 40))
for step in range(4):
    alpha = [B[:, seen[0]] + np.log(0.5)]
    for o in seen[1:]:
        alpha.append(torch.logsumexp(alpha[-1][:, None] + A, 0) + B[:, o])
    beta = [torch.zeros(2)]
    for o in seen[1:].flip(0):
        beta.insert(0, torch.logsumexp(A + B[:, o] + beta[0], 1))
    alpha, beta = torch.stack(alpha), torch.stack(beta)
    evidence = torch.logsumexp(alpha[-1], 0)
    gamma = (alpha + beta - evidence).exp()
    xi = (alpha[:-1, :, None] + A + (B[:, seen[1:]].T + beta[1:])[:, None] - evidence).exp().sum(0)
    A = (xi / xi.sum(1, keepdim=True)).log()
    B = torch.zeros(3, 2).index_add_(0, seen, gamma).T
    B = B.div(B.sum(1, keepdim=True)).log()
    print(f"evidence {evidence.item():.3f}", [round(v, 3) for v in A.exp().diag().tolist()])
