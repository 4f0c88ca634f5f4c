"""TabNet, each of whose features is a group of its own."""

import torch
from pytorch_tabnet.tab_network import TabNet


def tabnet():
    return TabNet(16, 2, group_attention_matrix=torch.eye(16), virtual_batch_size=16)
