"""Gated recurrent unit of Cho et al.: the state is reset before the matrix multiplication.

``z = sigmoid(W_z [x, h] + b_z)``, ``r = sigmoid(W_r [x, h] + b_r)``,
``n = tanh(W_h [x, r h] + b_h)``, ``h' = z h + (1 - z) n``.

``torch.nn.GRUCell`` and cuDNN reset after the multiplication, ``r (W h + b)``: a different function
unless ``r`` is 1. Resetting before it needs a second matrix multiplication per step, which has to
wait for ``r``.
"""
