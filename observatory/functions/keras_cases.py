"""A model of Keras on its PyTorch backend, which a variable chooses before the import."""

import os

os.environ["KERAS_BACKEND"] = "torch"

import keras


def mlp():
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((32,)),
            layers.Dense(64, activation="gelu"),
            layers.LayerNormalization(),
            layers.Dense(8),
        ]
    )
