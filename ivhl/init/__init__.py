"""What ``ivhl init`` writes into a project, so that it can be measured."""
