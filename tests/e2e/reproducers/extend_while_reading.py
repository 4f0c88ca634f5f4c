"""A list that a generator extends while the generator reads the list's end.

Found in November 2026 by ultralytics' SPPF, a layer of YOLO. Kind: Dynamo, without a graph break.
"""

import torch


def powers(x):
    found = [x]
    found.extend(found[-1] * 2 for _ in range(3))
    return torch.stack(found)


print("eager", powers(torch.ones(())).tolist())
print("compiled", torch.compile(powers)(torch.ones(())).tolist())
