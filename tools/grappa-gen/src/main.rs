//! Synthetic graphs: R-MAT, Erdos-Renyi and stochastic block models of any size.

fn main() {}
