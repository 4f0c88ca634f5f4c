"""What ivhl measures of ivhl-example-x-transformers: each module here that has a tuple WORKLOADS."""
