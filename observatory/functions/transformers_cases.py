"""Encoder-decoders of transformers, which take the tokens of the decoder by name."""

import torch
from transformers import T5Config, T5Model, WhisperConfig, WhisperModel


class Pair(torch.nn.Module):
    """An encoder-decoder that is called with its two inputs in order."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, source, tokens):
        found = self.model(source, decoder_input_ids=tokens)
        return found.encoder_last_hidden_state, found.last_hidden_state


def t5():
    sizes = {"vocab_size": 128, "d_model": 64, "d_kv": 16, "d_ff": 128}
    return Pair(
        T5Model(T5Config(**sizes, num_layers=2, num_heads=4, dropout_rate=0.0, use_cache=False))
    )


def whisper():
    layers = {"encoder_layers": 2, "decoder_layers": 2}
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    tokens = {"vocab_size": 128, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    widths = {"d_model": 64, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "num_mel_bins": 16}
    lengths = {"max_source_positions": 32, "max_target_positions": 32}
    about = layers | heads | tokens | widths | lengths
    return Pair(
        WhisperModel(
            WhisperConfig(**about, dropout=0.0, use_cache=False, decoder_start_token_id=1)
        )
    )
