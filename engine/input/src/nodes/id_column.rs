//! A first column of node ids in a text table: a header names it.

use std::borrow::Cow;

use crate::edges::{KeySeparator, trim};

/// Names of a first column of ids.
pub(super) const ID_NAMES: [&str; 8] = ["id", "node", "node_id", "nodeid", "node-id", "node id", "index", "key"];

/// The first column of a table has the node ids of its rows. The separator is that of the header, so ids may have others in them.
#[derive(Debug, Clone, Copy)]
pub(super) struct IdColumn {
    separator: KeySeparator,
}

impl IdColumn {
    /// The column of ids, if the first line of a file is a header that has one, and other columns.
    pub fn of_header(line: &[u8]) -> Option<Self> {
        let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        let separator = if line.contains(&b',') {
            KeySeparator::Comma
        } else if line.contains(&b'\t') {
            KeySeparator::Tab
        } else {
            KeySeparator::Blanks
        };
        let (name, others) = separator.first(trim(line)).ok()?;
        let is_id = ID_NAMES.iter().any(|id| name.eq_ignore_ascii_case(id.as_bytes()));
        (is_id && others.is_some()).then_some(Self { separator })
    }

    /// The id of a line, and the fields after it. An error says what is wrong with the line.
    pub fn split(self, line: &[u8]) -> Result<(Cow<'_, [u8]>, Option<&[u8]>), String> {
        let (id, rest) = self.separator.first(self.trimmed(line)).map_err(|bad| bad.reason())?;
        match id.is_empty() {
            true => Err("expected a node id in the first column, found none".to_owned()),
            false => Ok((id, rest)),
        }
    }

    /// Replaces the contents of `values` with the fields after the id.
    pub fn values<'a>(self, line: &'a [u8], values: &mut Vec<Cow<'a, [u8]>>) -> Result<(), String> {
        values.clear();
        let (_, mut rest) = self.split(line)?;
        while let Some(text) = rest {
            let (field, after) = self.separator.first(text).map_err(|bad| bad.reason())?;
            values.push(field);
            rest = after;
        }
        Ok(())
    }

    fn trimmed(self, line: &[u8]) -> &[u8] {
        match self.separator {
            // A tab at the end is an empty field.
            KeySeparator::Tab => line,
            KeySeparator::Comma | KeySeparator::Blanks => trim(line),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(header: &str, line: &str) -> Result<(String, Vec<String>), String> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let column = IdColumn::of_header(header.as_bytes()).expect("it names a column of ids");
        let mut found = Vec::new();
        column.values(line.as_bytes(), &mut found)?;
        let (id, _) = column.split(line.as_bytes())?;
        Ok((text(&id), found.iter().map(|value| text(value)).collect()))
    }

    #[test]
    fn the_separator_of_the_header_is_that_of_the_rows() {
        let row =
            |id: &str, values: &[&str]| Ok((id.to_owned(), values.iter().map(|&value| value.to_owned()).collect()));
        assert_eq!(values("id,label", "a b\tc, 3"), row("a b\tc", &["3"]));
        assert_eq!(values("ID\tlabel\tx", " a, b \t\t3"), row("a, b", &["", "3"]));
        assert_eq!(values("id\tlabel", "a\t"), row("a", &[""]));
        assert_eq!(values("node 0 1", "7   1 2"), row("7", &["1", "2"]));
        assert_eq!(values("\"id\",\"y\"", r#""a, ""b""","4""#), row(r#"a, "b""#, &["4"]));
        assert_eq!(values("\u{feff}Node_ID,0", "1,"), row("1", &[""]));
        assert_eq!(values("id,label", "7"), row("7", &[]));
        for (line, reason) in [(",3", "found none"), ("\"a,3", "not closed"), ("", "found none")] {
            let error = values("id,label", line).unwrap_err();
            assert!(error.contains(reason), "{line}: {error}");
        }
    }

    #[test]
    fn a_header_names_a_column_of_ids_and_others() {
        for line in ["id", "0,1", "label,id", "identity,x", "", "id_0 1"] {
            assert!(IdColumn::of_header(line.as_bytes()).is_none(), "{line}");
        }
    }
}
