"""What ivhl measures of ivhl-example-torchdiffeq: each module here that has a tuple WORKLOADS."""
