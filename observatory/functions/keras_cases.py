"""A model of Keras on its PyTorch backend, which a variable chooses before the import."""

import os

os.environ["KERAS_BACKEND"] = "torch"

import keras


def mlp():
    inputs = keras.Input((32,))
    hidden = keras.layers.Dense(64, activation="gelu")(inputs)
    outputs = keras.layers.Dense(8)(keras.layers.LayerNormalization()(hidden))
    # Not Sequential, which names the model inside of it anew when it is copied.
    return keras.Model(inputs, outputs, name="mlp")
