//! The nodes of a list of external ids.

use grappa_formats::NodeId;
use grappa_input::{IdKind, Keys, SplitSource};
use grappa_io::{Position, Result};

use crate::ids::IdMap;

/// The strings of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strings {
    /// Any strings.
    Any,
    /// Strings of the dictionary. They are found without reading the dictionary if its table is loaded.
    Known,
}

/// Calls `each` with the position, node and text of each id of `source`. The node is none if no node has the id.
pub fn for_each_node(
    source: &mut SplitSource,
    kind: IdKind,
    ids: &IdMap,
    strings: Strings,
    mut each: impl FnMut(Position, Option<NodeId>, &dyn Fn() -> String) -> Result<()>,
) -> Result<()> {
    match kind {
        IdKind::Integer => {
            let mut batch = Vec::new();
            while source.next_ids(&mut batch)? {
                for (index, &id) in batch.iter().enumerate() {
                    each(source.position(index), ids.node_of_int(id)?, &|| id.to_string())?;
                }
            }
        }
        IdKind::String => {
            let mut batch = Keys::default();
            while source.next_keys(&mut batch)? {
                for (index, key) in batch.iter().enumerate() {
                    let node = match strings {
                        Strings::Any => ids.node_of_text(key)?,
                        Strings::Known => ids.node_of_known_text(key)?,
                    };
                    each(source.position(index), node, &|| {
                        String::from_utf8_lossy(key).into_owned()
                    })?;
                }
            }
        }
    }
    Ok(())
}
