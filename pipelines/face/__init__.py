"""The functions of `import driftline as dl`: commands (`runs`), streams, evaluation and reports (`streams`)."""
