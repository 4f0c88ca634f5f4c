"""What ivhl measures of ivhl-example-e3nn: each module here that has a tuple WORKLOADS."""
