//! Names and ids in text of edges.

use grappa_io::Result;
use grappa_storage::Store;

use crate::export::edge_table;

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
            b',' if name.contains([',', '"', '\n', '\r']) => {
                line.extend(format!("\"{}\"", name.replace('"', "\"\"")).bytes());
            }
            b',' => line.extend(name.bytes()),
            _ => line.extend(name.replace(['\t', '\n', '\r'], " ").bytes()),
        }
    }
    line.push(b'\n');
    Ok(line)
}

/// The text formats in which an id needs quotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quotes {
    /// All formats.
    Always,
    /// Formats with commas.
    WithCommas,
}

pub fn needs_quotes(id: &[u8]) -> Option<Quotes> {
    if id.contains(&b'\t') || id.starts_with(b" ") || id.ends_with(b" ") {
        return Some(Quotes::Always);
    }
    (id.contains(&b',') || id.contains(&b'"')).then_some(Quotes::WithCommas)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_quoted_where_they_would_be_read_as_something_else() {
        for (id, quotes) in [
            ("plain", None),
            ("with blank", None),
            ("a,b", Some(Quotes::WithCommas)),
            ("say \"a\"", Some(Quotes::WithCommas)),
            ("a\tb", Some(Quotes::Always)),
            (" a", Some(Quotes::Always)),
            ("a ", Some(Quotes::Always)),
            // Comments end at the header.
            ("#a", None),
        ] {
            assert_eq!(needs_quotes(id.as_bytes()), quotes, "{id:?}");
        }
    }
}
