"""The log of a model in service: one row a prediction, labels that come late → how fast its versions age."""
