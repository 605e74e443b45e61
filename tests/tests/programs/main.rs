//! The end-to-end tests, one module per subject. They are one program, because each test program takes seconds to link.

/// Skips a test where programs cannot be killed or held at a chosen moment.
macro_rules! need_faults {
    () => {
        if !grappa_tests::held::IS_POSSIBLE {
            grappa_skip::skip!("{}", grappa_tests::held::WHY_NOT);
        }
    };
}

mod advice;
mod concurrent;
mod crash;
mod damage;
mod descriptors;
mod disk;
mod dry_run;
mod edge_split;
mod features;
mod formats;
mod generate;
mod graph_layouts;
mod graphs;
mod hostile;
mod ingest;
mod input;
mod memory;
mod misread;
mod node_times;
mod outputs;
mod place;
mod planted;
mod real;
mod remedies;
mod repartition;
mod sample;
mod signals;
mod split;
mod store;
mod task_tables;
mod times;
mod unfinished;
