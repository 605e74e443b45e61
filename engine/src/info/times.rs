//! The times of edges and nodes.

use grappa_formats::time_axis::TimeAxis;
use grappa_io::Result;
use grappa_storage::Store;
use serde::Serialize;

/// An axis of time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TimeAxisInfo {
    /// The unit: `integer`, `days`, `s`, `ms`, `us` or `ns`.
    pub unit: &'static str,
    /// The first time; `None` without edges or nodes.
    pub first: Option<i64>,
    /// The last time.
    pub last: Option<i64>,
    /// Points on the axis.
    pub positions: u64,
    /// Whether a table has the distinct times. Otherwise positions count units from the first time.
    pub table: bool,
}

/// The times of edges.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TimesInfo {
    /// Their axis.
    #[serde(flatten)]
    pub axis: TimeAxisInfo,
    /// Bits of the times for each edge, with their directories and the table, beside `bits_per_edge`.
    pub bits_per_edge: Option<f64>,
}

/// The times of nodes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NodeTimesInfo {
    /// Their axis.
    #[serde(flatten)]
    pub axis: TimeAxisInfo,
    /// Bits of the times for each node, with the table.
    pub bits_per_node: Option<f64>,
}

impl From<&TimeAxis> for TimeAxisInfo {
    fn from(axis: &TimeAxis) -> Self {
        let positions = axis.positions();
        Self {
            unit: axis.unit.name(),
            first: (positions > 0).then(|| axis.time(0)),
            last: positions.checked_sub(1).map(|last| axis.time(last)),
            positions,
            table: axis.is_table(),
        }
    }
}

/// The times of edges. `bytes` returns the length of the files of times, from the length of the table.
pub(super) fn times_info(store: &Store, bytes: impl Fn(u64) -> u64) -> Result<Option<TimesInfo>> {
    let Some(axis) = store.time_axis()? else { return Ok(None) };
    let edges = store.manifest().edges;
    Ok(Some(TimesInfo {
        axis: TimeAxisInfo::from(&**axis),
        bits_per_edge: (edges > 0).then(|| bytes(table_bytes(axis)) as f64 * 8.0 / edges as f64),
    }))
}

/// The times of nodes.
pub(super) fn node_times_info(store: &Store) -> Result<Option<NodeTimesInfo>> {
    let Some(times) = store.node_times()? else { return Ok(None) };
    let (axis, nodes) = (times.axis(), store.manifest().nodes);
    let bytes = times.payload_bytes() + table_bytes(axis);
    Ok(Some(NodeTimesInfo {
        axis: TimeAxisInfo::from(axis),
        bits_per_node: (nodes > 0).then(|| bytes as f64 * 8.0 / nodes as f64),
    }))
}

fn table_bytes(axis: &TimeAxis) -> u64 {
    if axis.is_table() { 8 * axis.positions() } else { 0 }
}
