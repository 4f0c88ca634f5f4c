"""A small Llama, for ``python -m ivhl.surgical advise parts:llama`` (docs/surgical.md)."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM


def llama():
    """Return the model, a tuple of its inputs, and its loss."""
    configuration = LlamaConfig(
        vocab_size=1000,
        hidden_size=256,
        intermediate_size=688,
        num_hidden_layers=4,
        num_attention_heads=8,
        use_cache=False,
    )
    model = LlamaForCausalLM(configuration).eval()
    tokens = torch.randint(1000, (1, 256))
    return model, (tokens,), lambda output: output.logits.square().mean()
