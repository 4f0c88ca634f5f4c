"""Make the weights of ``ivhl.mlff`` with one command: labels, training, model card.

``nox -s train-mlff`` runs it in its own environment, ``envs/train/``. Labels come from GFN2-xTB, by
tblite. Labels and checkpoints are kept in a folder, so that a killed run can be resumed.
"""
