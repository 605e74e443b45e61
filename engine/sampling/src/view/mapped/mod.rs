//! Adjacency lists in mapped files of a store, decoded when they are sampled.
//!
//! Sampled lists come from the page cache, or a page fault reads them. Touched pages count as memory of the process.
//! When they may exceed the view's budget, all of them are released; later page faults find those that the page cache
//! still has. If the budget is much smaller than the files, most cache lines then cost a page fault.
//!
//! - [`files`](super::files) has the mappings: it locates lists, prefetches them and checks their blocks;
//! - [`whole`] samples from the whole graph, where positions in a file are positions in the list;
//! - [`partition`] puts owned sources first.
//!
//! # Cost
//! Mapped lists cost three times as much as lists in memory. In R-MAT 22 with edge factor 16, fanouts 15,10,5 and
//! everything in the page cache, an edge takes 50 ns of one core at 4.1 GHz, against 15.5 ns from memory. Drawing and
//! relabelling take 11.5 ns of both. The rest is:
//!
//! - Waiting for memory, a little more than in memory: one line of the directory per destination, and often one of its
//!   exceptions; one line of upper bits and one of low bits per source. Sources share some of these lines. That is 1.3
//!   lines per edge instead of 1.2, on small pages; with all files on huge pages it takes 5 ns less. Lines are
//!   prefetched in stages (see [`AdjacencyLists`](super::adjacency::AdjacencyLists)). One in eight 8-byte loads
//!   straddles two lines, so both ends are prefetched.
//! - Instructions: 280 per destination (of 5.1 edges) to add up the sizes of the lists before it in its directory line;
//!   45 per edge to prefetch lines; and to find a source, 90 in a list of up to 250 upper bits and 190 in longer ones,
//!   each waiting for the one before. In the L1 cache this alone takes 4 + 3.5 + 7 to 14 ns.
//!
//! So mapped lists cannot be as fast as lists in memory. At 70 % of that speed, 10.5 ns (43 cycles) per edge would
//! remain for these 200 to 290 instructions. Selecting a bit with one instruction (PDEP) saves 2 to 4 ns, but takes
//! hundreds of cycles on processors before Zen 3. Counting the set bits of a line with one instruction needs AVX-512.
//!
//! A cache of decoded lists does not pay either. Lists with many sources are drawn from more often, but only in
//! proportion: those with at least 512 sources have 43 % of the edges and get 32 % of the draws. To reach 70 % of the
//! speed, 80 % of all lists would have to be cached. With that much memory,
//! [`ViewKind::Memory`](super::ViewKind::Memory) is possible.

mod partition;
mod whole;

pub(super) use self::{partition::MappedPartition, whole::MappedWhole};
