"""What sentence-transformers adds to an encoder: pooling, normalisation, a loss over the batch."""

import torch
from sentence_transformers.models import Normalize, Pooling
from sentence_transformers.util import cos_sim
from transformers import BertConfig, BertModel


class Ranking(torch.nn.Module):
    """The loss of pairs of sentences; the other pairs of the batch are the negatives."""

    def __init__(self):
        super().__init__()
        sizes = {"hidden_size": 32, "intermediate_size": 64, "vocab_size": 128}
        self.encoder = BertModel(
            BertConfig(
                **sizes,
                num_hidden_layers=1,
                num_attention_heads=4,
                hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0,
            ),
            add_pooling_layer=False,
        )
        self.pooling = Pooling(32, pooling_mode="mean")
        self.normalize = Normalize()

    def embed(self, tokens):
        mask = (tokens > 0).long()
        hidden = self.encoder(tokens, attention_mask=mask).last_hidden_state
        features = {"token_embeddings": hidden, "attention_mask": mask}
        return self.normalize(self.pooling(features))["sentence_embedding"]

    def forward(self, anchors, positives):
        scores = 20.0 * cos_sim(self.embed(anchors), self.embed(positives))
        labels = torch.arange(len(scores), device=scores.device)
        return torch.nn.functional.cross_entropy(scores, labels)
