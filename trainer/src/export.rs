//! Exports the model of a run for other programs: one safetensors file with the parameters of the best evaluation.
//!
//! Names and shapes are as in a PyTorch module with PyTorch Geometric's layers in a `ModuleList` named `layers`, so
//! `load_state_dict` accepts the file. `python/grappa/model.py` is that module. In the table, i and o are the widths before and
//! after a layer, and h is the number of heads. A head has o/h values, or o in the last layer, which averages heads.
//!
//! | layer | class in PyTorch Geometric | tensors, each with the prefix `layers.N.` |
//! |---|---|---|
//! | sage, sage-max | `SAGEConv` | `lin_l.weight` `[o, i]` and `lin_l.bias` `[o]`, of neighbors; `lin_r.weight` `[o, i]`, of the node |
//! | gcn | `GCNConv` | `lin.weight` `[o, i]`, `bias` `[o]` |
//! | gin | `GINConv`, `train_eps=True` | `eps` `[1]`, `nn.0.weight` `[hidden, i]`, `nn.0.bias` `[hidden]`, `nn.3.weight` `[o, hidden]`, `nn.3.bias` `[o]`, and a layer norm, `nn.1.weight` and `nn.1.bias` `[hidden]`; without norms, `nn.2` for `nn.3` |
//! | gat | `GATConv` | `lin.weight` `[o, i]`, `att_src` and `att_dst` `[1, h, o/h]`, `bias` `[o]` |
//! | gine | `GINEConv`, `train_eps=True`, `edge_dim=e` | as gin; `lin.weight` `[i, e]`, `lin.bias` `[i]` |
//! | transformer | `TransformerConv` | `lin_key`, `lin_query`, `lin_value`, `lin_skip`, each with `weight` `[o, i]` and `bias` `[o]` |
//! | gatv2 | `GATv2Conv` | `lin_l.weight`, `lin_r.weight` `[o, i]`, `lin_l.bias`, `lin_r.bias` `[o]`, `att` `[1, h, o/h]`, `bias` `[o]` |
//! | pinsage | - | `Q.weight` `[o, i]`, `Q.bias` `[o]`, `W.weight` `[o, o + i]`, `W.bias` `[o]`; once, `head.weight` `[classes, hidden]`, `head.bias` `[classes]` |
//!
//! With e features of an edge, gatv2 and transformer also have `lin_edge.weight` `[o, e]`. With weights of edges, sage and gin are classes of
//! `model.py`, with the same tensors.
//!
//! In the last layer of gat, gatv2 and transformer, h is `last_heads` if the options have it, and weights and biases of `lin` have h times as many
//! rows, except `lin_skip`. Between the layers N and N + 1 there are
//!
//! - `norms.N.weight` and `norms.N.bias` `[hidden]` of `BatchNorm1d` or `LayerNorm`; for `BatchNorm1d` also `running_mean` and
//!   `running_var` `[hidden]`, and `num_batches_tracked`, which is always 0;
//! - `residuals.N.weight` `[hidden, i]` of a `Linear` without bias, if there are residual connections and i is not `hidden`;
//! - `activations.N.weight` `[1]` of `PReLU`.
//!
//! With jumping knowledge, all layers have o = `hidden`, and `head.weight` `[classes, hidden]` and `head.bias` `[classes]` follow; for
//! `cat` it is `[classes, layers * hidden]`.
//!
//! Before the first layer there are `feature_mean` and `feature_deviation` `[i]`, if features are standardized.
//!
//! Learnable embeddings of nodes are `embeddings.TYPE.weight` `[nodes, values]`, in the order of nodes.
//!
//! Targets of regression are `target_mean` plus `target_deviation` times the values of the last layer; both are `[targets]`.
//!
//! All values are f32. The metadata of the file has, as JSON: `model`, the [`ModelOptions`](grappa_run::model::ModelOptions); `task`,
//! `multi-class`, `multi-label` or `regression`; `class_names` and `feature_names`, lists, which are empty if classes (or targets) or features have no names. `digest`
//! is a SHA-256 that `model.py` checks.

use std::collections::BTreeMap;

use grappa_io::durable::Destination;
use grappa_run::checkpoint::{Dtype, NamedTensor};
use serde::Serialize;

use crate::{Result, train::trained_model::Trained};

/// The size of an exported file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Exported {
    /// Number of tensors.
    pub tensors: usize,
    /// Number of values of all parameters.
    pub parameters: usize,
    /// Length of the file in bytes.
    pub bytes: u64,
}

/// Writes the model of a run to the new file `out`.
///
/// # Errors
/// If the file exists and is not to be replaced, or cannot be written.
pub fn export<'a>(trained: &Trained, out: impl Into<Destination<'a>>) -> Result<Exported> {
    let destination = out.into();
    destination.check()?;
    let out = destination.path;
    let model = trained.model();
    let buffers = model.parameters().buffers();
    let counters: Vec<NamedTensor> = buffers
        .iter()
        .filter_map(|(name, _)| name.strip_suffix("running_mean"))
        .map(|norm| NamedTensor::new(format!("{norm}num_batches_tracked"), Dtype::I64, &[], vec![0; 8]))
        .collect();
    let more = [counters, trained.exported_embeddings()].concat();
    let metadata = BTreeMap::from([
        ("task".to_owned(), json(&trained.task())),
        ("class_names".to_owned(), json(trained.class_names())),
        ("feature_names".to_owned(), json(&trained.schema().feature_names())),
    ]);
    model.save_with(out, &more, metadata)?;
    let length = out.metadata().map_err(grappa_io::Error::io("read", out))?.len();
    Ok(Exported {
        tensors: model.parameters().named().len() + buffers.len() + more.len(),
        parameters: model.parameters().count(),
        bytes: length,
    })
}

fn json(value: &(impl Serialize + ?Sized)) -> String {
    serde_json::to_string(value).expect("it is plain data")
}
