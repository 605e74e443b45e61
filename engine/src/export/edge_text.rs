//! Names and ids in text of edges.

use grappa_io::Result;
use grappa_storage::Store;

use crate::export::{edge_table, table::push_quoted};

/// The first line of text.
pub fn header(store: &Store, separator: u8) -> Result<Vec<u8>> {
    let names = ["source", "target"].map(str::to_owned).into_iter().chain(edge_table::value_names(store)?);
    let mut line = Vec::new();
    for name in names {
        if !line.is_empty() {
            line.push(separator);
        }
        // In tabs, there are no quotes: a name that needs them loses its tabs and line ends.
        match separator {
            b',' if name.contains([',', '"', '\n', '\r']) => push_quoted(name.as_bytes(), &mut line),
            b',' => line.extend(name.bytes()),
            _ => line.extend(name.replace(['\t', '\n', '\r'], " ").bytes()),
        }
    }
    line.push(b'\n');
    Ok(line)
}

/// Whether an id needs quotes in text with this separator.
pub fn needs_quotes(id: &[u8], separator: u8) -> bool {
    let is_special = |byte: &u8| *byte == b'\t' || separator == b',' && matches!(byte, b',' | b'"');
    id.starts_with(b" ") || id.ends_with(b" ") || id.iter().any(is_special)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_quoted_where_they_would_be_read_as_something_else() {
        for (id, with_tabs, with_commas) in [
            ("plain", false, false),
            ("with blank", false, false),
            ("a,b", false, true),
            ("say \"a\"", false, true),
            ("a\tb", true, true),
            (" a", true, true),
            ("a ", true, true),
            // Comments end at the header.
            ("#a", false, false),
        ] {
            let found = [b'\t', b','].map(|separator| needs_quotes(id.as_bytes(), separator));
            assert_eq!(found, [with_tabs, with_commas], "{id:?}");
        }
    }
}
