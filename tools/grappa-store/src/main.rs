//! Look into a graph store: info, verify, export and plan.

fn main() {}
