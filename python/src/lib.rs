//! The Python module `grappa._grappa`: stores, ingest and loaders. The package `grappa` in the folder beside it gives them the
//! interfaces of NumPy, PyTorch and PyTorch Geometric.
//!
//! Nothing here links libtorch. Arrays reach Python through the buffer protocol (`array`), so NumPy and PyTorch use the
//! memory that Rust wrote, ingest reads the memory of arrays and tables (`inputs`), and kernels work on the memory of tensors (`kernels`). The GIL is free while Python waits for threads of
//! Rust. They take it in one case: to read an array of another library by rows.

mod array;
mod background;
mod delivery;
mod edge_values;
mod epochs;
mod error;
mod graph;
mod graph_ingest;
mod in_edges;
mod inputs;
mod kernels;
mod labels;
mod layout;
mod links;
mod loader;
mod nodes;
mod options;
mod partitions;
mod process;
mod program;
mod runs;
mod sampler;
mod store;
mod threads;
mod times;
mod typed_loader;
mod typed_options;

use pyo3::prelude::*;

#[pymodule]
mod _grappa {
    use super::*;

    #[pymodule_export]
    use super::array::Array;
    #[pymodule_export]
    use super::epochs::Batches;
    #[pymodule_export]
    use super::error::exception_of;
    #[pymodule_export]
    use super::graph::Graph;
    #[pymodule_export]
    use super::graph_ingest::ingest_graph;
    #[pymodule_export]
    use super::kernels::{
        edge_products, edge_softmax, edge_softmax_backward, linear_products, linear_products_backward,
        linear_rows_backward, linear_sum, linear_sum_backward, pair_attention, pair_attention_backward, sort_edges,
        sum_logits, sum_logits_backward, transpose_edges, weighted_sum, weighted_sum_backward,
    };
    #[pymodule_export]
    use super::loader::{Loader, default_memory};
    #[pymodule_export]
    use super::program::{in_python, keep_warnings, main, run, take_warnings};
    #[pymodule_export]
    use super::runs::{read_table, run_config, run_metrics, run_summary};
    #[pymodule_export]
    use super::sampler::Sampler;
    #[pymodule_export]
    use super::store::Store;
    #[pymodule_export]
    use super::typed_options::typed_options;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("Error", module.py().get_type::<error::Error>())?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
