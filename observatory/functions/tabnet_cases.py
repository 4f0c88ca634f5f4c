"""TabNet, each of whose features is a group of its own."""

import torch
from pytorch_tabnet.tab_network import TabNet


def tabnet():
    model = TabNet(16, 2, group_attention_matrix=torch.eye(16), virtual_batch_size=16)
    for module in model.modules():
        # Matrices that are plain attributes become buffers, which are cast with the model.
        names = [name for name, value in vars(module).items() if isinstance(value, torch.Tensor)]
        for name in names:
            module.register_buffer(name, module.__dict__.pop(name))
    return model
