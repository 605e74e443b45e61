//! A first column of node ids in a text table: a header names it.

use super::table_columns::ID_NAMES;
use crate::edges::{Field, KeySeparator, trim};

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

    /// The id of a line. An error says what is wrong with the line.
    pub fn id(self, line: &[u8]) -> Result<Field<'_>, String> {
        let (id, _) = self.separator.first(self.trimmed(line)).map_err(|bad| bad.reason())?;
        match id.is_empty() {
            true => Err("expected a node id in the first column, found none".to_owned()),
            false => Ok(id),
        }
    }

    /// Replaces the contents of `fields` with the fields of a line, that of the id first.
    pub fn fields<'a>(self, line: &'a [u8], fields: &mut Vec<Field<'a>>) -> Result<(), String> {
        fields.clear();
        let mut rest = Some(self.trimmed(line));
        while let Some(text) = rest {
            let (field, after) = self.separator.first(text).map_err(|bad| bad.reason())?;
            fields.push(field);
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

    fn fields(header: &str, line: &str) -> Result<Vec<String>, String> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let column = IdColumn::of_header(header.as_bytes()).expect("it names a column of ids");
        let mut found = Vec::new();
        column.fields(line.as_bytes(), &mut found)?;
        assert_eq!(column.id(line.as_bytes())?, found[0]);
        Ok(found.iter().map(|field| text(field)).collect())
    }

    #[test]
    fn the_separator_of_the_header_is_that_of_the_rows() {
        for (header, line, expected) in [
            ("id,label", "a b\tc, 3", &["a b\tc", "3"][..]),
            ("ID\tlabel\tx", " a, b \t\t3", &["a, b", "", "3"]),
            ("id\tlabel", "a\t", &["a", ""]),
            ("node 0 1", "7   1 2", &["7", "1", "2"]),
            ("\"id\",\"y\"", r#""a, ""b""","4""#, &[r#"a, "b""#, "4"]),
            ("\u{feff}Node_ID,0", "1,", &["1", ""]),
            ("id,label", "7", &["7"]),
        ] {
            assert_eq!(fields(header, line).unwrap(), expected, "{header}");
        }
        for (line, reason) in [(",3", "found none"), ("\"a,3", "not closed"), ("", "found none")] {
            let error = fields("id,label", line).unwrap_err();
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
