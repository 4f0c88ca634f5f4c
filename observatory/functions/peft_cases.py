"""A Llama with low-rank adapters, as peft adds them."""

from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM


def lora():
    sizes = {"vocab_size": 128, "hidden_size": 64, "intermediate_size": 128}
    layers = {"num_hidden_layers": 2, "num_attention_heads": 4, "use_cache": False}
    adapters = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    return get_peft_model(LlamaForCausalLM(LlamaConfig(**sizes, **layers)), adapters)
