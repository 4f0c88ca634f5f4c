"""A larger decoder, for ``python -m ivhl.surgical advise parts:decoder`` (docs/surgical.md)."""

import torch
from x_transformers import Decoder, TransformerWrapper


def decoder():
    """Return the model and a tuple of its inputs."""
    layers = Decoder(dim=256, depth=4, heads=8, rotary_pos_emb=True)
    model = TransformerWrapper(num_tokens=1000, max_seq_len=256, attn_layers=layers)
    return model.eval(), (torch.randint(1000, (1, 256)),)
