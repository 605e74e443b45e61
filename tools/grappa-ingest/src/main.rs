//! Edge lists in, a compressed and verified graph store out, under a memory budget.

fn main() {}
