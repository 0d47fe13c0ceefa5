"""A whole batch on virtual time: limits, routing and modelled workers, one run or a grid."""
