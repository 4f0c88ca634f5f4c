"""A policy of stable-baselines3, asked what its loss asks: values, log probabilities, entropy."""

import numpy as np
from gymnasium.spaces import Box
from stable_baselines3.common.policies import ActorCriticPolicy


class Policy(ActorCriticPolicy):
    """An actor and a critic that judge given actions."""

    def extract_features(self, obs, features_extractor=None):
        # The library's own casts to float32 first, so that nothing is exact in float64.
        return (features_extractor or self.features_extractor)(obs)

    def forward(self, seen, actions):
        return self.evaluate_actions(seen, actions)


def policy():
    spaces = (Box(-np.inf, np.inf, (width,), np.float32) for width in (8, 2))
    return Policy(*spaces, lambda _: 1e-3)
