"""What ivhl measures of ivhl-example-timm: each module here that has a tuple WORKLOADS."""
