"""Losses of policy training, each a pure function of tensors in one small file."""
