//! The kinds of aggregation. [`aggregate`](mod@super::aggregate) has the operators.

/// The aggregation of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aggregate {
    /// The mean; with edge weights, the sum of messages times weights, divided by the sum of weights.
    Mean,
    /// The maximum, value by value.
    Max,
    /// The sum, of messages times edge weights if there are some.
    Sum,
    /// GCN's sum: each message times 1 / sqrt((d + 1) (s + 1)), with the in-degrees d of the destination and s of the source. Edge
    /// weights are factors, too, and d and s are then sums of the weights of in-edges. It leaves out the destination itself, which the
    /// update adds.
    Gcn,
    /// The sum of messages times edge weights, divided by the sum of edge weights, or by 1 if that is larger. Without edge
    /// weights, all are 1.
    WeightedMean,
    /// A mean with attention weights, which includes the destination itself.
    Attention,
    /// A mean with attention weights of the in-neighbors alone.
    AttentionToOthers,
    /// GINE's sum of messages that depend on the features of edges: `relu(x + products of features)`.
    ReluSum,
}

/// The scaling of sampled sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scaling {
    /// No scaling.
    #[default]
    None,
    /// Times (in-degree in the whole graph) / (number of draws). Destinations without edges keep their zeros.
    HorvitzThompson,
}
