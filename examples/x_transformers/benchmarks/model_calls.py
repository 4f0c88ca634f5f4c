"""The functions that model.py names. Imported in the cells only."""

import torch
from x_transformers import Decoder, TransformerWrapper


def make_model(size):
    """Return the model. ivhl seeds PyTorch before, and puts the model back before each call."""
    del size
    layers = Decoder(dim=64, depth=2, heads=4, rotary_pos_emb=True)
    return TransformerWrapper(num_tokens=256, max_seq_len=64, attn_layers=layers)


def make_inputs(size, generator):
    """Return a tuple of what the model is called with, drawn from the generator alone."""
    return (torch.randint(256, (size, 64), generator=generator),)
