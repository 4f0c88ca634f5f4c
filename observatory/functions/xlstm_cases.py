"""A stack of xLSTM's matrix memories."""

from xlstm import mLSTMBlockConfig, mLSTMLayerConfig, xLSTMBlockStack, xLSTMBlockStackConfig


def stack():
    layer = mLSTMLayerConfig(conv1d_kernel_size=4, qkv_proj_blocksize=4, num_heads=2)
    return xLSTMBlockStack(
        xLSTMBlockStackConfig(
            mlstm_block=mLSTMBlockConfig(mlstm=layer),
            context_length=16,
            num_blocks=2,
            embedding_dim=32,
        )
    )
