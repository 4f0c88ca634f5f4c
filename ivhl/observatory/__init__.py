"""The observatory: does torch.compile work for a library, in which cells, and why not."""
