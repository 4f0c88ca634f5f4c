"""A module that ends the process which imports it."""

import os

os._exit(0)
