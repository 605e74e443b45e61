//! The columns of a table in text: their separator, their names, and what their first values are.

use std::{collections::HashSet, path::Path, sync::Arc};

use grappa_io::{Error, Position, Result};

use super::forms::TableForm;
use crate::{
    columns::{Kind, Roles, TableColumn, is_known_name},
    file::InputFile,
    line_reader::{Line, Lines},
    messages::Checked,
    separator::{Field, OpenQuote, Separator, unquoted},
    table::{Form, HEXADECIMAL, form_of},
};

/// The first lines that show what the columns have, and their bytes.
const HEAD_LINES: usize = 100;
const HEAD_BYTES: usize = 1 << 20;

/// A table in text, as its first lines show it.
pub(super) struct TextTable {
    pub separator: Separator,
    /// Whether the first line has the names of the columns.
    pub header: bool,
    /// Their names, or their numbers, from 1.
    pub names: Vec<String>,
    values: Vec<FirstValues>,
    /// Whether any of the first lines has a quote.
    pub has_quotes: bool,
    line: u64,
}

impl TextTable {
    /// Reads the first lines. None if they are blank.
    pub fn read(file: &Arc<InputFile>, form: &TableForm) -> Result<Option<Self>> {
        let mut lines = Lines::of_file(file)?;
        let (mut head, mut bytes) = (Vec::new(), 0);
        while head.len() < HEAD_LINES
            && bytes < HEAD_BYTES
            && let Some(line) = lines.next_line()?
        {
            bytes += line.bytes.len();
            if !text_of(&line, file)?.is_empty() {
                head.push(line);
            }
        }
        let Some(first) = head.first() else { return Ok(None) };
        let texts = head.iter().map(Line::text);
        let separator = match form.separator {
            Some(separator) => separator,
            None => Separator::of_lines(texts.clone(), "--table-separator").map_err(|problem| file.error(problem))?,
        };
        let fields = separator
            .fields(first.text())
            .map_err(|OpenQuote| Error::input(file.path(), Position::Line(first.number), OpenQuote::REASON))?;
        let names: Vec<String> =
            fields.iter().map(|field| String::from_utf8_lossy(unquoted(field)).into_owned()).collect();
        let header = first.number == 1 && is_header(&names);
        let data: Vec<Vec<Field<'_>>> = texts
            .skip(usize::from(header))
            .filter_map(|text| separator.fields(text).ok())
            .filter(|fields| fields.len() == names.len())
            .collect();
        let columns =
            (0..names.len()).map(|column| FirstValues::from_values(data.iter().map(|row| unquoted(&row[column]))));
        Ok(Some(Self {
            separator,
            header,
            values: columns.collect(),
            has_quotes: head.iter().any(|line| line.bytes.contains(&b'"')),
            names: match header {
                true => names,
                false => (1..=names.len()).map(|number| number.to_string()).collect(),
            },
            line: first.number,
        }))
    }

    pub fn columns(&self) -> Vec<TableColumn<'_>> {
        let columns = self.names.iter().zip(&self.values);
        columns.map(|(name, values)| TableColumn { name, kind: values.kind }).collect()
    }

    pub fn names_of(&self, columns: &[usize]) -> Vec<String> {
        columns.iter().map(|&column| self.names[column].clone()).collect()
    }

    /// Whether it is a matrix of numbers without names.
    pub fn is_matrix(&self) -> bool {
        !self.header && !self.values.iter().any(|values| matches!(values.kind, Kind::Strings | Kind::Encodable))
    }

    /// Whether all first values of these columns are numbers.
    pub fn are_numbers(&self, columns: &[usize]) -> bool {
        columns.iter().all(|&column| self.values[column].are_numbers)
    }

    /// Whether all first values of a column that are not missing are integers.
    pub fn are_integers(&self, column: usize) -> bool {
        self.values[column].are_integers
    }

    /// Whether most first values of a column are dates.
    pub fn are_times(&self, column: usize) -> bool {
        self.values[column].are_times
    }

    pub fn refused(&self, path: &Path, problem: String) -> Error {
        Error::input(path, Position::Line(self.line), problem)
    }

    pub fn ids(&self, path: &Path, form: &TableForm) -> Result<Option<IdColumn>> {
        let id =
            Roles::id_of(&self.columns(), self.header, &form.columns).map_err(|problem| self.refused(path, problem))?;
        Ok(id.map(|column| IdColumn { separator: self.separator, column }))
    }
}

/// Whether the fields of a first line are names: none of them is a number, a date or the like, or one is known. A first column
/// without a name, before numbers from 0, is the index of pandas.
fn is_header(names: &[String]) -> bool {
    if names.iter().any(|name| is_known_name(name)) {
        return true;
    }
    match names {
        [first, rest @ ..] if first.is_empty() && !rest.is_empty() => {
            let are_numbered = rest.iter().enumerate().all(|(at, name)| *name == at.to_string());
            are_numbered || rest.iter().all(|name| !name.is_empty() && !is_value(name))
        }
        names => names.iter().all(|name| !name.is_empty() && !is_value(name)),
    }
}

/// Whether a text is a value rather than a name. Letters such as `y` are names.
fn is_value(text: &str) -> bool {
    let is_boolean = ["true", "false"].iter().any(|word| word.eq_ignore_ascii_case(text));
    let form = form_of(text);
    is_boolean
        || text.parse::<f64>().is_ok()
        || matches!(form, Form::Code | Form::Date(_) | Form::OtherDate | Form::OtherNumber(_))
}

/// What the first values of a column are.
#[derive(Debug, Clone, Copy)]
pub(super) struct FirstValues {
    pub kind: Kind,
    /// Whether all are numbers, and there is at least one.
    pub are_numbers: bool,
    /// Whether all that are not missing are integers, 0 or more, and there is at least one.
    are_integers: bool,
    /// Whether most are dates.
    are_times: bool,
}

impl FirstValues {
    pub fn from_values<'a>(values: impl Iterator<Item = &'a [u8]>) -> Self {
        let (mut all, mut missing, mut numbers, mut plain, mut booleans, mut others) = (0, 0, 0, 0, 0, 0);
        let (mut whole, mut dates) = (0, 0);
        let (mut integers, mut texts) = (HashSet::new(), HashSet::new());
        for value in values {
            let text = str::from_utf8(value).unwrap_or("\u{fffd}");
            let form = form_of(text);
            if form == Form::Missing {
                missing += 1;
                continue;
            }
            all += 1;
            match form {
                Form::Number(_) => (numbers, plain) = (numbers + 1, plain + 1),
                Form::Code => numbers += 1,
                Form::Boolean(..) => booleans += 1,
                // A number in base 16 may be an address.
                Form::Date(_) | Form::OtherDate => others += 1,
                Form::OtherNumber(kind) => others += usize::from(kind != HEXADECIMAL),
                Form::Missing | Form::Text => {}
            }
            whole += usize::from(text.parse::<u64>().is_ok());
            dates += usize::from(matches!(form, Form::Date(_)));
            integers.extend(text.parse::<u64>().ok());
            texts.insert(text);
        }
        let kind = if all > 0 && 2 * numbers < all {
            // Text that repeats is a category.
            if texts.len() == all && booleans < all && 2 * others < all { Kind::Strings } else { Kind::Encodable }
        } else if all > 1 && integers.len() == all {
            Kind::DistinctIntegers
        } else {
            Kind::Numbers
        };
        let (are_integers, are_times) = (all > 0 && whole == all, all > 0 && 2 * dates > all);
        Self { kind, are_numbers: all > 0 && plain == all && missing == 0, are_integers, are_times }
    }
}

/// A column of a table has the node ids of its rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct IdColumn {
    separator: Separator,
    column: usize,
}

impl IdColumn {
    /// The id of a line. An error says what is wrong with the line.
    pub fn id(self, line: &[u8]) -> Checked<Field<'_>> {
        let mut columns = 0;
        for field in self.separator.split(line) {
            let field = field.map_err(|OpenQuote| OpenQuote::REASON)?;
            columns += 1;
            if columns > self.column {
                return match field.is_empty() {
                    true => Err(format!("expected a node id in column {columns}, found none")),
                    false => Ok(field),
                };
            }
        }
        Err(format!("expected a node id in column {}, found {columns} columns", self.column + 1))
    }
}

pub(super) fn text_of<'a>(line: &'a Line, file: &InputFile) -> Result<&'a str> {
    std::str::from_utf8(line.text()).map_err(|_| {
        Error::input(
            file.path(),
            Position::Line(line.number),
            "expected a row of numbers in text, found other bytes; save arrays as .npy or .npz files",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The columns of a table, and the fields of its second line.
    fn read(text: &str) -> (TextTable, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.txt");
        std::fs::write(&path, text).unwrap();
        let file = InputFile::open(&path).unwrap();
        let table = TextTable::read(&file, &TableForm::default()).unwrap().unwrap();
        let line = text.lines().nth(1).unwrap_or_default();
        let fields = table.separator.split(line.as_bytes());
        let fields = fields.map(|field| String::from_utf8(field.unwrap().to_vec()).unwrap()).collect();
        (table, fields)
    }

    #[test]
    fn the_separator_of_all_lines_is_that_of_the_fields() {
        for (text, expected) in [
            ("id,label\na b\tc, 3", &["a b\tc", "3"][..]),
            ("ID\tlabel\tx\n a, b \t\t3", &["a, b", "", "3"]),
            ("id\tlabel\na\t", &["a", ""]),
            ("node 0 1\n7   1 2", &["7", "1", "2"]),
            ("\"id\",\"y\"\n\"a, \"\"b\"\"\",\"4\"", &["a, \"b\"", "4"]),
            ("id;x\n7;0,5", &["7", "0,5"]),
        ] {
            let (table, fields) = read(text);
            assert_eq!(fields, expected, "{text}");
            assert!(table.header, "{text}");
        }
    }

    #[test]
    fn a_header_has_names() {
        for (text, header) in [
            ("a,b\n1,2", true),
            (",0,1\n7,0.5,1", true),
            ("label,0,1\n7,0.5,1", true),
            ("0,1\n1,2", false),
            ("nan,1\n1,2", false),
            ("n0,3\nn1,4", false),
            ("true,2024-01-01\nfalse,2024-01-02", false),
            ("x,y\n1,2", true),
        ] {
            assert_eq!(read(text).0.header, header, "{text}");
        }
    }

    #[test]
    fn values_say_what_a_column_has() {
        let (table, _) =
            read("a,b,c,d,e,f,g,h,i\n3,0.5,x,1,,z,2024-01-01,true,0x1\n5,1,y,1,7,z,2024-01-02,false,0x2\n");
        let kinds = [
            Kind::DistinctIntegers,
            Kind::Numbers,
            Kind::Strings,
            Kind::Numbers,
            Kind::Numbers,
            Kind::Encodable,
            Kind::Encodable,
            Kind::Encodable,
            Kind::Strings,
        ];
        assert_eq!(table.values.iter().map(|values| values.kind).collect::<Vec<_>>(), kinds);
        let numbers = [true, true, false, true, false, false, false, false, false];
        assert_eq!(table.values.iter().map(|values| values.are_numbers).collect::<Vec<_>>(), numbers);
    }
}
