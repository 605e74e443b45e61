//! Size and speed of BVGraph, of the crate `webgraph`: lines for the table of the bench `row_codec`, which starts this
//! program with `--bvgraph`.
//!
//! It is a package of its own, outside the workspace, so that nothing else is built with webgraph's crates.

#[path = "../../benches/row_codec/graph.rs"]
mod graph;
#[path = "../../benches/row_codec/measure.rs"]
mod measure;
mod rows;

use std::{env, process::ExitCode};

use webgraph::prelude::CompFlags;

use self::{measure::measure, rows::bv_rows};

fn main() -> ExitCode {
    let Some(name) = env::args().nth(1) else {
        eprintln!("usage: grappa-bvgraph (rmat:SCALE | EDGES.npy)");
        return ExitCode::from(2);
    };
    let Some(graph) = graph::load(&name) else {
        eprintln!("error: {name} does not exist");
        return ExitCode::FAILURE;
    };
    for (name, flags) in [
        ("BVGraph", CompFlags::default()),
        (
            "BVGraph, no references",
            CompFlags {
                compression_window: 0,
                ..Default::default()
            },
        ),
    ] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        measure(name, &graph, || bv_rows(&graph, folder.path(), flags));
    }
    ExitCode::SUCCESS
}
